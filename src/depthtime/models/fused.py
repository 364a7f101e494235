"""The fixed-step solve of the continuous model as one differentiable operation, for speed on a CPU.

It computes what `continuous.ContinuousDepth` computes, and the same direct gradients, to rounding; that class is the
simple twin and the reference of the tests. What is faster:

- one node in autograd's graph; its backward is written out, and nothing that needs no gradient gets one;
- rows are positions first, (N, B, D), and the rows of the input projection are dealt heads first, so that queries, keys
  and values are strided views that batched products read without copies; keys are padded with zeros to full vectors;
- GELU and its derivative come from one sigmoid, a few rows at a time in cache; backward is one multiplication;
- gradients of weights are added to one sum inside the product, while its factors are in cache;
- memory, and the views into it, are kept from one training step to the next.

Source: Hairer, Norsett, Wanner (1993), Solving Ordinary Differential Equations I, section II.1; the transposed scheme
of backward: Hager (2000), Runge-Kutta methods in optimal control and the transformed adjoint system, section 2.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from depthtime.config import FusedRun, ModelSizes
from depthtime.errors import SolveError
from depthtime.integrate.fixed import Solution, solve_fixed
from depthtime.integrate.tableaus import TABLEAUS, Tableau
from depthtime.models.block import PostNormBlock
from depthtime.models.cache import DepthCache
from depthtime.models.continuous import ContinuousDepth

aten = torch.ops.aten
_Part = tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]  # of GELU: x, output, derivative, and room
LOGIT, CUBIC = 2 * math.sqrt(2 / math.pi), 0.044715  # GELU, tanh form, is x sigmoid(LOGIT (x + CUBIC x^3))
CHUNK = 2**16  # numbers of an array for which GELU's five arrays stay in a cache of 2 MiB
KEY_MULTIPLE = 16  # float32 in a vector register


class FusedContinuousDepth(ContinuousDepth):
    """ContinuousDepth with the fused solve: the same parameters, names and results. Hooks of the block do not run."""

    def __init__(self, block: PostNormBlock, tableau: Tableau, num_steps: int, t0: float, t1: float) -> None:
        super().__init__(block, tableau, num_steps, t0, t1)
        self.pool = Pool()

    def forward(self, y: Tensor, cache: DepthCache | None = None) -> Solution:
        """State (B, N, D) at t0 -> Solution at t1; decoding with a cache takes the plain solve."""
        if cache is not None:
            return super().forward(y, cache)
        return fused_solve(
            self.block, y, tableau=self.tableau, num_steps=self.num_steps, t0=self.t0, t1=self.t1, pool=self.pool
        )


def fused_solve(
    block: PostNormBlock,
    y0: Tensor,
    *,
    tableau: Tableau,
    num_steps: int,
    t0: float,
    t1: float,
    pool: Pool | None = None,
) -> Solution:
    """Integrate dy/dt = Block(y) from t0 to t1 in equal steps.

    Args:     y0: state (B, N, D).  pool: memory of earlier solves, to use again.
    Returns:  what `solve_fixed` returns. Under autocast, and for other types than float32 and float64, it is that.
    """
    if num_steps < 1:
        raise SolveError(f"num_steps = {num_steps}, expected at least 1")
    if torch.is_autocast_enabled(y0.device.type) or y0.dtype not in {torch.float32, torch.float64}:
        return solve_fixed(lambda t, y: block(y), y0, tableau=tableau, num_steps=num_steps, t0=t0, t1=t1)
    scheme = _Scheme(tableau, num_steps, (t1 - t0) / num_steps, block.attention.heads, block.norm1.eps)
    layers = (block.attention.qkv, block.attention.out, block.norm1, block.ff_in, block.ff_out, block.norm2)
    weights = [t for layer in layers for t in (layer.weight, layer.bias)]
    keeps = torch.is_grad_enabled() and any(t.requires_grad for t in (y0, *weights))
    loan = (pool or Pool()).lend(scheme, y0, block.ff_in.out_features, keeps)
    y1 = _Solve.apply(y0, scheme, loan, *weights) if keeps else _Solver(scheme, weights, loan.tape).forward(y0)
    return Solution(y1, nfe=tableau.num_stages * num_steps, num_steps=num_steps)


@dataclass(frozen=True)
class _Scheme:
    """What does not depend on the batch."""

    tableau: Tableau
    num_steps: int
    h: float
    heads: int
    eps: float


class Pool:
    """Tapes of finished solves. Fresh memory costs a page fault every 4 KiB, which is more than an addition costs."""

    def __init__(self) -> None:
        self.tapes: list[_Tape] = []

    def lend(self, scheme: _Scheme, y0: Tensor, ff_width: int, keeps: bool) -> _Loan:
        """A tape for this batch, used before or new; idle tapes of other sizes are given up."""
        key = (scheme, y0.shape, ff_width, y0.dtype, y0.device, keeps)
        self.tapes = [tape for tape in self.tapes if tape.key == key or tape.keeps != keeps]
        for i, tape in enumerate(self.tapes):
            if tape.key == key:
                return _Loan(self, self.tapes.pop(i))
        return _Loan(self, _Tape(key, scheme, y0, ff_width, keeps))

    def __deepcopy__(self, memo: object) -> Pool:
        return Pool()

    def __reduce__(self) -> tuple[type[Pool], tuple[()]]:
        return Pool, ()


@dataclass
class _Loan:
    """A tape in use; it goes back to its pool when the graph that needs it is gone."""

    pool: Pool
    tape: _Tape

    def __del__(self) -> None:
        self.pool.tapes.append(self.tape)


class _Slot:
    """What backward needs of one evaluation, in M = N B rows, positions first; G = B H, and K is N rounded up."""

    y: Tensor  # input (M, D)
    a: Tensor  # output of the first norm (M, D)
    moments1: list[Tensor]  # mean and reciprocal deviation (M, 1) of the first norm's input
    moments2: list[Tensor]

    def __init__(self, y0: Tensor, heads: int, ff_width: int, keeps: bool) -> None:
        (batch, positions, width), new = y0.shape, y0.new_empty
        rows, keys = positions * batch, -(-positions // KEY_MULTIPLE) * KEY_MULTIPLE
        projected = y0.new_zeros(keys, batch * heads, 3, width // heads)
        q, k, self.v = projected.permute(2, 1, 0, 3)  # each (G, K, D/H)
        self.qkv, self.q = projected.view(-1, 3 * width)[:rows], q[:, :positions]
        self.k, self.k_t, self.v_t = k, k.mT, self.v.mT
        self.attention = new(batch * heads, positions, keys)  # after softmax; 0 for later and padded keys
        self.attention_t = self.attention[:, :, :positions].mT
        self.mixed = new(rows, width)
        self.mixed_heads = _heads_of(self.mixed, positions, heads)
        self.sum1, self.sum2 = new(rows, width), new(rows, width)  # inputs of the norms
        self.gelu, self.gelu_slope = new(rows, ff_width), new(rows if keeps else 0, ff_width)
        self.gelu_parts: list[_Part] = []


class _Tape:
    """A slot for each evaluation (one for all when nothing is kept), and room for the work of one."""

    def __init__(self, key: tuple[object, ...], scheme: _Scheme, y0: Tensor, ff_width: int, keeps: bool) -> None:
        self.key, self.keeps, new = key, keeps, y0.new_empty
        (batch, positions, width), heads = y0.shape, scheme.heads
        rows, evaluations = positions * batch, scheme.tableau.num_stages * scheme.num_steps
        slots = [_Slot(y0, heads, ff_width, keeps) for _ in range(evaluations if keeps else 1)]
        self.slots = slots if keeps else slots * evaluations

        self.scores, self.scores_bar = (torch.empty_like(slots[0].attention) for _ in range(2))  # (G, N, K)
        self.scores_bar_t = self.scores_bar[:, :, :positions].mT
        self.mask = new(self.scores.shape[1:]).fill_(-math.inf).triu_(1)
        self.mixed = new(batch * heads, positions, width // heads)
        self.mixed_bar = new(rows, width)
        self.mixed_heads_bar = _heads_of(self.mixed_bar, positions, heads)
        heads_bar = new(3, *self.mixed.shape)
        self.q_bar, self.k_bar, self.v_bar = heads_bar
        self.qkv_bar, self.heads_bar = new(rows, 3 * width), heads_bar.permute(2, 1, 0, 3)  # (N, G, 3, D/H)
        self.hidden, self.a_bar, self.ones = new(rows, ff_width), new(rows, width), y0.new_ones(rows)

        size = min(rows, max(1, CHUNK // ff_width)) if y0.device.type == "cpu" else rows
        u, p = new(size, ff_width), new(size, ff_width)
        for slot in slots:
            slopes = slot.gelu_slope.split(size) if keeps else itertools.repeat(None)
            for x, gelu, slope in zip(self.hidden.split(size), slot.gelu.split(size), slopes, strict=False):
                slot.gelu_parts.append((x, gelu, slope, u[: len(x)], p[: len(x)]))


class _Solve(torch.autograd.Function):
    """The solve as one operation of autograd."""

    @staticmethod
    def forward(ctx: Any, y0: Tensor, scheme: _Scheme, loan: _Loan, *weights: Tensor) -> Tensor:
        ctx.save_for_backward(*weights)
        ctx.scheme, ctx.loan = scheme, loan
        return _Solver(scheme, weights, loan.tape).forward(y0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, y1_bar: Tensor) -> tuple[Tensor | None, ...]:
        y0_bar, gradients = _Solver(ctx.scheme, ctx.saved_tensors, ctx.loan.tape).backward(y1_bar)
        return y0_bar, None, None, *gradients


class _Solver:
    """The block and its vector-Jacobian product on a tape, and the scheme through both. x_bar is the cotangent of x."""

    def __init__(self, scheme: _Scheme, weights: Sequence[Tensor], tape: _Tape) -> None:
        self.scheme, self.tape = scheme, tape
        w_qkv, b_qkv, *others = (w.detach() for w in weights)
        self.weights = (_regroup(w_qkv, 3, scheme.heads), _regroup(b_qkv, 3, scheme.heads), *others)

    def forward(self, y0: Tensor) -> Tensor:
        """State (B, N, D) at t0 -> state at t1."""
        tableau, h, slots = self.scheme.tableau, self.scheme.h, iter(self.tape.slots)
        y = y0.detach().transpose(0, 1).clone(memory_format=torch.contiguous_format).flatten(0, 1)  # (M, D)
        for _ in range(self.scheme.num_steps):
            slopes: list[Tensor] = []
            for row in tableau.a:
                slot = next(slots)
                slot.y = _combine(y, slopes, row, h)
                slopes.append(self.evaluate(slot))
            y = _combine(y, slopes, tableau.b, h)
        return y.unflatten(0, (-1, len(y0))).transpose(0, 1).contiguous()

    def evaluate(self, at: _Slot) -> Tensor:
        """Slope (M, D) at the state in a slot, which takes what backward needs."""
        w_qkv, b_qkv, w_out, b_out, gain1, shift1, w_in, b_in, w_ff, b_ff, gain2, shift2 = self.weights
        tape, width, eps = self.tape, [len(b_ff)], self.scheme.eps
        torch.addmm(b_qkv, at.y, w_qkv.t(), out=at.qkv)
        tape.scores.baddbmm_(at.q, at.k_t, beta=0, alpha=at.q.shape[2] ** -0.5).add_(tape.mask)
        aten._softmax.out(tape.scores, -1, False, out=at.attention)
        at.mixed_heads.copy_(torch.bmm(at.attention, at.v, out=tape.mixed))
        torch.add(at.y, b_out, out=at.sum1).addmm_(at.mixed, w_out.t())
        at.a, *at.moments1 = aten.native_layer_norm(at.sum1, width, gain1, shift1, eps)
        torch.addmm(b_in, at.a, w_in.t(), out=tape.hidden)
        for part in at.gelu_parts:
            _gelu(*part)
        torch.add(at.a, b_ff, out=at.sum2).addmm_(at.gelu, w_ff.t())
        slope, *at.moments2 = aten.native_layer_norm(at.sum2, width, gain2, shift2, eps)
        return slope

    def backward(self, y1_bar: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Cotangent (B, N, D) at t1 -> cotangent at t0 and gradients of the weights, in their order."""
        tableau, h, slots = self.scheme.tableau, self.scheme.h, reversed(self.tape.slots)
        sums = [_zeros(w) for w in self.weights]
        y_bar = y1_bar.transpose(0, 1).flatten(0, 1)  # (M, D)
        for _ in range(self.scheme.num_steps):
            stage_bars: dict[int, Tensor] = {}
            for stage in reversed(range(tableau.num_stages)):
                slope_bar = y_bar * (h * tableau.b[stage])
                for later, bar in stage_bars.items():
                    if weight := tableau.a[later][stage]:
                        slope_bar.add_(bar, alpha=h * weight)
                stage_bars[stage] = self.pull_back(next(slots), slope_bar, sums)
            for bar in stage_bars.values():
                y_bar = y_bar + bar
        sums[:2] = (_regroup(t, self.scheme.heads, 3) for t in sums[:2])
        return y_bar.unflatten(0, (-1, len(y1_bar))).transpose(0, 1), sums

    def pull_back(self, at: _Slot, slope_bar: Tensor, sums: list[Tensor]) -> Tensor:
        """Cotangent of a slope (M, D) -> that of the state it was taken at; adds the gradients of the weights."""
        w_qkv, _, w_out, _, gain1, shift1, w_in, _, w_ff, b_ff, gain2, shift2 = self.weights
        of_qkv, of_out, of_norm1, of_in, of_ff, of_norm2 = zip(sums[::2], sums[1::2], strict=True)
        tape, width, scale = self.tape, [len(b_ff)], at.q.shape[2] ** -0.5
        norm_backward, every = aten.native_layer_norm_backward, [True, True, True]

        sum2_bar, *by_norm2 = norm_backward(slope_bar, at.sum2, width, *at.moments2, gain2, shift2, every)
        self.add_linear(of_ff, at.gelu, sum2_bar)
        hidden_bar = torch.mm(sum2_bar, w_ff, out=tape.hidden).mul_(at.gelu_slope)
        self.add_linear(of_in, at.a, hidden_bar)
        a_bar = torch.addmm(sum2_bar, hidden_bar, w_in, out=tape.a_bar)
        sum1_bar, *by_norm1 = norm_backward(a_bar, at.sum1, width, *at.moments1, gain1, shift1, every)
        self.add_linear(of_out, at.mixed, sum1_bar)
        torch._foreach_add_([*of_norm1, *of_norm2], [*by_norm1, *by_norm2])

        torch.mm(sum1_bar, w_out, out=tape.mixed_bar)
        torch.bmm(at.attention_t, tape.mixed_heads_bar, out=tape.v_bar)
        torch.bmm(tape.mixed_heads_bar, at.v_t, out=tape.scores)
        aten._softmax_backward_data.out(tape.scores, at.attention, -1, at.y.dtype, grad_input=tape.scores_bar)
        tape.q_bar.baddbmm_(tape.scores_bar, at.k, beta=0, alpha=scale)
        tape.k_bar.baddbmm_(tape.scores_bar_t, at.q, beta=0, alpha=scale)
        tape.qkv_bar.view(tape.heads_bar.shape).copy_(tape.heads_bar)
        self.add_linear(of_qkv, at.y, tape.qkv_bar)
        return torch.addmm(sum1_bar, tape.qkv_bar, w_qkv)

    def add_linear(self, sums: tuple[Tensor, Tensor], x: Tensor, x_bar: Tensor) -> None:
        """Add a linear layer's gradients, from its input (M, in) and the cotangent of its output (M, out)."""
        weight, bias = sums
        if weight.is_contiguous():
            weight.addmm_(x_bar.t(), x)
        else:
            weight.t().addmm_(x.t(), x_bar)
        bias.addmv_(x_bar.t(), self.tape.ones)


def _zeros(weight: Tensor) -> Tensor:
    """Zeros for a gradient; a tall matrix lies transposed, since products with the shorter side first are faster."""
    is_tall = weight.dim() == 2 and weight.shape[0] > weight.shape[1]
    return weight.new_zeros(weight.shape[::-1]).t() if is_tall else torch.zeros_like(weight)


def _regroup(rows: Tensor, outer: int, inner: int) -> Tensor:
    """Rows of the input projection from (outer, inner, D/H) to (inner, outer, D/H): parts 3 and heads H, or back."""
    return rows.unflatten(0, (outer, inner, -1)).transpose(0, 1).flatten(0, 2)


def _combine(y: Tensor, slopes: Sequence[Tensor], weights: Sequence[float], h: float) -> Tensor:
    """y + h * sum of weights times slopes, in the order of `solve_fixed`; y itself when all weights are 0."""
    total = y
    for slope, weight in zip(slopes, weights, strict=True):
        if weight:
            total = torch.add(total, slope, alpha=h * weight, out=None if total is y else total)
    return total


def _heads_of(rows: Tensor, positions: int, heads: int) -> Tensor:
    """View of rows (M, D), positions first, by batch and head: (G, N, D/H)."""
    return rows.view(positions, -1, rows.shape[1] // heads).transpose(0, 1)


def _gelu(x: Tensor, gelu: Tensor, slope: Tensor | None, u: Tensor, p: Tensor) -> None:
    """GELU(x), and its derivative p + GELU(x) (1 - p) LOGIT (1 + 3 CUBIC x^2), with p = sigmoid(...); all (rows, F)."""
    torch.addcmul(x, x, torch.mul(x, x, out=u), value=CUBIC, out=u).mul_(LOGIT)
    torch.mul(x, torch.sigmoid(u, out=p), out=gelu)
    if slope is not None:
        torch.addcmul(gelu, gelu, p, value=-1, out=u)
        torch.addcmul(p, torch.mul(u, x, out=slope), x, value=3 * CUBIC * LOGIT, out=slope).add_(u, alpha=LOGIT)


def build_core(run: FusedRun, sizes: ModelSizes) -> FusedContinuousDepth:
    """The core that a row `model: fused` asks for."""
    block = PostNormBlock(sizes.width, sizes.heads, sizes.ff_width)
    return FusedContinuousDepth(block, TABLEAUS[run.solver], run.num_steps, run.t0, run.t1)
