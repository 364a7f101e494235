"""Finite-time Lyapunov exponents of a sequence of tokens that moves over depth, y_{k+1} = y_k + h f_k(y_k).

Two definitions. `pair_exponents` is that of the source's released code: one matrix for each input token, moved by the
block of the Jacobian between that token and the output alone. `tangent_flow` is that of the mathematics: perturbations
of one token, carried through all tokens by the linearised steps. They agree where there is one token.

Any f_k will do; nothing here knows of language. States are (N, D): N tokens, width D.
Source: Neural ODE Transformers (ICLR 2025), released code; for exponents by QR factors Benettin et al. (1980),
Lyapunov characteristic exponents for smooth dynamical systems, Meccanica 15.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import jacrev, jvp, vmap

Field = Callable[[Tensor], Tensor]


class Step(NamedTuple):
    """One step over depth: y + h * f(y), with `field` f from (N, D) to (N, D), without the residual."""

    h: float
    field: Field


@dataclass(frozen=True)
class Flow:
    """What became of r orthonormal perturbations of each of T input tokens, one token perturbed at a time.

    exponents  (T, r): log growth of each direction of the whole sequence, by QR; not divided by time, which is 1
    at_output  (T, D, r): the perturbations at the output token after the last step, a column each
    """

    exponents: Tensor
    at_output: Tensor


def trajectory(steps: Sequence[Step], y: Tensor) -> list[Tensor]:
    """The states y_0 ... y_L of (N, D) before, between and after L steps."""
    states = [y]
    for step in steps:
        states.append(states[-1] + step.h * step.field(states[-1]))
    return states


def pair_exponents(steps: Sequence[Step], states: Sequence[Tensor], output: int) -> Tensor:
    """Exponents (N, D) of Q_i <- Q_i + h J_i Q_i, Q_i = I at first, with J_i = d f(states[k])[output] / d token i.

    Q_i is factorised in each step, Q stays, log |diag R| adds up. For i other than `output` this is the tangent flow of
    no system: the perturbation of token i stays at token i, and is multiplied by what it does to another token. A token
    without influence has exponents of 0.
    Source: the released code; the states and the fields that it is called with are those of `sensitivity`.
    """
    tokens, width = states[0].shape
    q = torch.eye(width, dtype=states[0].dtype).expand(tokens, -1, -1)
    sums = states[0].new_zeros(tokens, width)
    for (h, field), y in zip(steps, states, strict=True):
        jacobian = _output_jacobian(field, y, output)  # (N, D, D)
        q, r = torch.linalg.qr(q + h * jacobian @ q)
        sums += _log_growth(r)
    return sums


def tangent_flow(
    steps: Sequence[Step], states: Sequence[Tensor], seeds: Tensor, *, tokens: Sequence[int], output: int
) -> Flow:
    """Carry `seeds` (D, r), orthonormal perturbations of each of T tokens in turn, along `states` y_0 ... y_{L-1}.

    V <- V + h JVP_f(y_k; V) for V (N, D, r) of each token, made orthonormal in each step; the product of all R gives
    back what that takes away, so `at_output` is the product of the linearised steps, restricted to the output token.
    """
    (n, width), count = states[0].shape, seeds.shape[1]
    v = states[0].new_zeros(len(tokens), n, width, count)
    v[range(len(tokens)), list(tokens)] = seeds
    exponents, product = seeds.new_zeros(len(tokens), count), torch.eye(count, dtype=seeds.dtype)
    for (h, field), y in zip(steps, states, strict=True):
        moved = (v + h * _pushed(field, y, v)).flatten(1, 2)  # (T, N D, r)
        r = torch.linalg.qr(moved, mode="r").R  # (T, r, r)
        q = torch.linalg.solve_triangular(r, moved, upper=True, left=False)  # where nothing arrives, exactly 0 stays
        v, product = q.view_as(v), r @ product
        exponents += _log_growth(r)
    return Flow(exponents, v[:, output] @ product)


def flow_jacobian(steps: Sequence[Step], y: Tensor, output: int) -> Tensor:
    """d y_L[output] / d y_0[i] for every token i, (N, D, D), by reverse mode through all steps.

    What `tangent_flow` finds at the output with all D directions of a token, for all tokens at once.
    """
    return _output_jacobian(lambda state: trajectory(steps, state)[-1], y, output)


def orthonormal(width: int, count: int, seed: int = 0) -> Tensor:
    """`count` random orthonormal directions, the columns of (D, r), float64; fewer of the same seed are its first."""
    draw = torch.randn(width, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.linalg.qr(draw).Q[:, :count]


def log_largest(block: Tensor) -> float:
    """Log of the largest singular value: growth of the direction that grows most; -inf where nothing arrives."""
    return float(torch.linalg.matrix_norm(block, ord=2).log())


def log_mean(block: Tensor) -> float:
    """Log of the root mean square growth over the columns' directions, the same on average for any number of them."""
    return float((torch.linalg.matrix_norm(block) / block.shape[1] ** 0.5).log())


def _output_jacobian(field: Field, y: Tensor, output: int) -> Tensor:
    """d field(y)[output] / d y[i] for every token i, (N, D, D)."""
    found: Tensor = jacrev(lambda state: field(state)[output])(y)  # (D, N, D)
    return found.transpose(0, 1)


def _pushed(field: Field, y: Tensor, v: Tensor) -> Tensor:
    """Directional derivatives of the field at y (N, D) along v (T, N, D, r), of the same shape."""
    tangents = v.movedim(-1, 1).flatten(0, 1)  # (T r, N, D)
    pushed: Tensor = vmap(lambda tangent: jvp(field, (y,), (tangent,))[1])(tangents)
    return pushed.unflatten(0, (v.shape[0], v.shape[-1])).movedim(1, -1)


def _log_growth(r: Tensor) -> Tensor:
    return r.diagonal(dim1=-2, dim2=-1).abs().log()
