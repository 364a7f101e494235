"""What a solve costs: calls of the vector field, forward and backward apart."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from depthtime.errors import SolveError
from depthtime.integrate.fixed import VectorField, require_same_kind


@dataclass
class Cost:
    """Calls of the vector field in backward passes, added up over the solves that were given this object.

    The backward pass runs after the solve has returned, so its count cannot be in Solution; the caller owns this one.
    Direct gradients add nothing: autograd does not call the field.
    """

    nfe_backward: int = 0


class CountedField:
    """The vector field as an adaptive solver calls it: counted, bounded, and never outside of [t0, t1].

    Torchdiffeq's time tensors become floats (time gets no gradient) and it reports its steps to the two callbacks.
    Calls made after `is_backward` is set count in `cost`.
    """

    def __init__(
        self, f: VectorField, *, name: str, t0: float, t1: float, max_nfe: int, cost: Cost | None = None
    ) -> None:
        self.f, self.name, self.max_nfe, self.cost = f, name, max_nfe, cost
        self.low, self.high = min(t0, t1), max(t0, t1)
        self.nfe = self.num_backward = self.num_accepted = self.num_rejected = 0
        self.is_backward = False
        self.t, self.slope = t0, torch.zeros(())  # of the last call, for messages

    def __call__(self, t: float | Tensor, y: Tensor) -> Tensor:
        self.t = min(max(t.item() if isinstance(t, Tensor) else t, self.low), self.high)
        self._count()
        slope = self.f(self.t, y)
        require_same_kind(slope, y)
        self.slope = slope.detach()
        return slope

    def _count(self) -> None:
        if (self.num_backward if self.is_backward else self.nfe) >= self.max_nfe:
            raise self.error(f"needs more than max_nfe = {self.max_nfe} evaluations")
        if not self.is_backward:
            self.nfe += 1
            return
        self.num_backward += 1
        if self.cost is not None:
            self.cost.nfe_backward += 1

    def callback_accept_step(self, t: object = None, y: object = None, h: object = None) -> None:
        self.num_accepted += 1

    def callback_reject_step(self, t: object = None, y: object = None, h: object = None) -> None:
        self.num_rejected += 1

    def underflow(self) -> SolveError:
        """The error of a step size that fell to zero, by its likely cause."""
        if not torch.isfinite(self.slope).all():
            return self.error("met a state or slope that is not finite (NaN or infinity)")
        return self.error("had to make its step size zero, underflow in dt: the field is stiff or jumps")

    def error(self, what: str) -> SolveError:
        """One line: solver and tolerance, what happened, how far it came, what to do."""
        where = "in the backward pass, " if self.is_backward else ""
        count = self.num_backward if self.is_backward else self.nfe
        return SolveError(
            f"{self.name} {what}; {where}reached t = {self.t:g} of [{self.low:g}, {self.high:g}] after {count} "
            "evaluations; raise rtol and atol, or max_nfe, or take a fixed-step solver"
        )
