"""How generated weights move over depth time: at the times they were trained at, and between them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from depthtime.config import DiffEqFormerRun
from depthtime.models.diffeqformer import DiffEqFormer
from depthtime.models.generated import frequencies

MATRICES = ("query", "key", "value", "attention_out", "ff_in", "ff_out")
CHUNK = 32  # times whose weights are in memory together
Array = NDArray[np.floating]


def aliased_share(run: DiffEqFormerRun) -> float:
    """Share of the sinusoids of t that turn by more than pi in a step 1/L, so that the trained times cannot tell them
    from slower ones (beyond the Nyquist frequency of the grid)."""
    return float((run.time_scale * frequencies(run.sinusoids) > math.pi * run.num_steps).double().mean())


@torch.no_grad()
def smoothness(core: DiffEqFormer, intervals: int) -> dict[str, Any]:
    """Of each matrix, on `intervals` equal pieces of each step 1/L between trained times. Norms are Frobenius.

    between     distance of W(t) from the straight line through W at the trained times around t, over |W(t)|; `curve`
                at `times`, its median at the middle of steps, and its largest value. Before the first trained time
                the line stays at W(1/L).
    neighbours  |W(t) - W(t - 1/(L intervals))| / |W(t)|: median and largest value
    trained     |W(k/L) - W((k - 1)/L)| / |W(k/L)|, k = 2 ... L: median; null for L = 1
    path        length of the way on the fine grid from t = 1/L to 1, over that of the straight pieces: 1 where W moves
                straight from one trained time to the next; null where the straight pieces have no length
    """
    depth = core.num_steps
    times = [j / (depth * intervals) for j in range(depth * intervals + 1)]
    trained = _matrices(core, [k / depth for k in range(1, depth + 1)])
    last = {name: stack[0] for name, stack in _matrices(core, times[:1]).items()}
    norms: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {name: [] for name in MATRICES}
    for begin in range(1, len(times), CHUNK):
        for name, here in _matrices(core, times[begin : begin + CHUNK]).items():
            line = _line(trained[name], range(begin, begin + len(here)), intervals)
            moved = here - torch.cat([last[name][None], here[:-1]])
            norms[name].append((_norm(here), _norm(moved), _norm(here - line)))
            last[name] = here[-1]
    found = {}
    for name, parts in norms.items():
        size, move, off = (torch.cat(column).double().numpy() for column in zip(*parts, strict=True))
        straight = _norm(trained[name][1:] - trained[name][:-1]).double().numpy()
        found[name] = _summary(size, move, off, straight, intervals)
    return {"times": times[1:], **found}


def _summary(size: Array, move: Array, off: Array, straight: Array, intervals: int) -> dict[str, Any]:
    """The entry of one matrix from norms on the fine grid (L intervals) and between trained times (L - 1)."""
    relative, length = off / size, float(straight.sum())
    middles = relative[intervals + intervals // 2 - 1 :: intervals]  # of steps 2 ... L
    at_trained = size[2 * intervals - 1 :: intervals]  # t = 2/L ... 1
    return {
        "curve": relative.tolist(),
        "middle": float(np.median(middles)) if len(middles) else None,
        "largest": float(relative.max()),
        "neighbours": float(np.median(move / size)),
        "neighbours_largest": float((move / size).max()),
        "trained": float(np.median(straight / at_trained)) if len(straight) else None,
        "path": float(move[intervals:].sum()) / length if length > 0 else None,
    }


def _line(trained: Tensor, places: range, intervals: int) -> Tensor:
    """Straight between W at trained times, at t = j / (L intervals) for j in `places`, all at least 1."""
    rows = []
    for j in places:
        step, part = divmod(j - 1, intervals)  # t lies between trained[step - 1] and trained[step]
        rows.append(torch.lerp(trained[max(step - 1, 0)], trained[step], (part + 1) / intervals))
    return torch.stack(rows)


def _matrices(core: DiffEqFormer, times: list[float]) -> dict[str, Tensor]:
    """Every matrix at each of T times, (T, in, out)."""
    weights = core.generate(times)
    query, key, value = torch.stack([w.qkv.weight for w in weights]).chunk(3, dim=-1)
    others = {name: torch.stack([getattr(w, name).weight for w in weights]) for name in MATRICES[3:]}
    return {"query": query, "key": key, "value": value, **others}


def _norm(matrices: Tensor) -> Tensor:
    """Frobenius norms (T,) of matrices (T, in, out)."""
    return torch.linalg.vector_norm(matrices, dim=(-2, -1))
