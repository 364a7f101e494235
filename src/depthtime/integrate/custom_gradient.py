"""Solves whose gradient we write ourselves: the common ground of `adjoint` and `reversible`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.autograd.graph import Node, get_gradient_edge

from depthtime.errors import SolveError
from depthtime.integrate.fixed import VectorField

Run = Callable[[Tensor], tuple[Tensor, ...]]
PullBack = Callable[[tuple[Tensor, ...], tuple[Tensor, ...], Tensor], tuple[Tensor, Sequence[Tensor]]]


def with_pull_back(run: Run, pull_back: PullBack, y0: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """The first state of run(y0), with the gradient that pull_back computes.

    Args:     run: y0 -> states at t1, called without a graph; all of them are kept for the backward pass.
              pull_back: (states, parameters, gradient of states[0]) -> gradients of y0 and of each parameter.
              parameters: those that need no gradient are left out.
    """
    return _PulledBack.apply(run, pull_back, y0, *(p for p in parameters if p.requires_grad))


class _PulledBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: Run, pull_back: PullBack, y0: Tensor, *parameters: Tensor) -> Tensor:
        states = run(y0)
        ctx.pull_back, ctx.num_states = pull_back, len(states)
        ctx.save_for_backward(*states, *parameters)
        return states[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, y_bar: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        states = tuple(state.detach() for state in saved[: ctx.num_states])  # else states[0] leads back to this node
        y0_bar, parameter_bars = ctx.pull_back(states, saved[ctx.num_states :], y_bar)
        return None, None, y0_bar, *parameter_bars


def vector_jacobian(output: Tensor, inputs: Sequence[Tensor], cotangent: Tensor) -> list[Tensor]:
    """Cotangent times d output / d input for each input; zeros where the output does not depend on it."""
    if not output.requires_grad:
        return [torch.zeros_like(x) for x in inputs]
    return list(torch.autograd.grad(output, inputs, cotangent, allow_unused=True, materialize_grads=True))


def refuse_captured(f: VectorField, parameters: Sequence[Tensor]) -> VectorField:
    """The field f, refusing at its first call any trainable tensor it reads that is not among `parameters`.

    Such a tensor would lose its gradient in silence. The first call keeps its graph just long enough to look for
    leaves; no call is added. A tensor that f reads only at later times is not seen. Without grad mode: f itself.
    """
    is_due = torch.is_grad_enabled()

    def checked(t: float, y: Tensor) -> Tensor:
        nonlocal is_due
        if not is_due:
            return f(t, y)
        is_due = False
        with torch.enable_grad():
            slope = f(t, y.detach())
        missing = _captured_leaves(slope, parameters)
        if missing:
            shapes = ", ".join(str(tuple(leaf.shape)) for leaf in missing)
            raise SolveError(
                f"the vector field reads {len(missing)} trainable tensor(s) of shape {shapes} that are not in "
                "parameters and would get no gradient; pass them, for a module tuple(module.parameters())"
            )
        return slope.detach()

    return checked


def _captured_leaves(output: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Leaves that the graph of output reaches without passing through `parameters`."""
    if not output.requires_grad:
        return []
    known = {id(p) for p in parameters}
    seen = {p.grad_fn for p in parameters}  # a parameter may be computed from others
    waiting: list[Node | None] = [get_gradient_edge(output).node]
    leaves = []
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)  # only the node of a leaf has it
        if leaf is not None and id(leaf) not in known:
            leaves.append(leaf)
        waiting.extend(parent for parent, _ in node.next_functions)
    return leaves
