"""A trained core of pre-norm layers as steps over depth, for one sequence, and where each step's attention looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from depthtime.config import FormSizes
from depthtime.errors import ConfigError
from depthtime.integrate.tableaus import TABLEAUS
from depthtime.measure.lyapunov import Step
from depthtime.models.diffeqformer import DiffEqFormer
from depthtime.models.layer_weights import BlockWeights
from depthtime.models.pre_norm import normalise, parallel_update, sequential_layer
from depthtime.models.rotary import rotate
from depthtime.models.transformer import TransformerStack


def steps_of(core: nn.Module) -> list[Step]:
    """The steps of a forward pass, on states (N, D): of size 1/L for a DiffEqFormer, or layers with step 1 or 1/L.

    A sequential layer, whose feed-forward part reads what attention wrote, is one step y + (layer(y) - y).
    Raises: ConfigError for a core that has no such steps.
    """
    if isinstance(core, DiffEqFormer):
        return _euler_steps(core, core.times())
    stack, weights = _stack_of(core), weights_of(core)
    if stack.run.wiring == "parallel":
        h = 1.0 if stack.run.step_scale == "one" else 1 / stack.run.layers
        return [Step(h, _for_one(partial(parallel_update, stack.sizes, w, past=None, dropout=0.0))) for w in weights]
    h = 1.0 if stack.run.step_scale == "one" else 1 / stack.run.layers
    layers = [partial(sequential_layer, stack.sizes, w, past=None, step=h, dropout=0.0) for w in weights]
    return [Step(1.0, _for_one(lambda y, layer=layer: layer(y) - y)) for layer in layers]  # type: ignore[misc]


def left_steps(core: nn.Module) -> list[Step] | None:
    """The steps of a DiffEqFormer with the weights of their beginnings, t = 0 ... (L-1)/L; None for a stack.

    The released code differentiates these. Weights at t = 0 were never trained.
    """
    if not isinstance(core, DiffEqFormer):
        return None
    return _euler_steps(core, [step / core.num_steps for step in range(core.num_steps)])


def weights_of(core: nn.Module) -> list[BlockWeights]:
    """The weights of each step of a forward pass."""
    if isinstance(core, DiffEqFormer):
        return core.generate(core.times())
    stack = _stack_of(core)
    own: list[BlockWeights] = [block.weights() for block in stack.blocks]  # type: ignore[operator,misc]
    return own * (stack.run.layers if stack.run.shares_weights else 1)


def attention_maps(core: nn.Module, states: Sequence[Tensor]) -> list[Tensor]:
    """How much each position looks at each other in every step, (H, N, N) with rows that add up to 1."""
    sizes: FormSizes = core.sizes  # type: ignore[assignment]
    return [attention_map(sizes, weights, y) for weights, y in zip(weights_of(core), states, strict=False)]


def attention_map(sizes: FormSizes, weights: BlockWeights, y: Tensor) -> Tensor:
    """The softmax that `pre_norm.attention` multiplies values with, (H, N, N), for a state (N, D)."""
    x = normalise(sizes, weights.norm1, y)
    query_key = x @ weights.qkv.weight[:, : 2 * sizes.width]  # (N, 2 D)
    if weights.qkv.bias is not None:
        query_key = query_key + weights.qkv.bias[: 2 * sizes.width]
    q, k = query_key.view(len(y), 2, sizes.heads, -1).permute(1, 2, 0, 3)[:, None]  # each (1, H, N, D/H)
    if sizes.form == "llama":
        q, k = rotate(q, 0), rotate(k, 0)
    scores = (q @ k.mT)[0] / q.shape[-1] ** 0.5
    later = torch.ones(len(y), len(y), dtype=torch.bool).triu(1)
    return scores.masked_fill(later, float("-inf")).softmax(dim=-1)


def _euler_steps(core: DiffEqFormer, times: Sequence[float]) -> list[Step]:
    if TABLEAUS[core.run.solver].num_stages > 1:
        raise ConfigError([f"params.yaml: sensitivity.runs: solver = {core.run.solver}; expected a run of Euler steps"])
    fields = [partial(core.vector_field, t, weights=w) for t, w in zip(times, core.generate(times), strict=True)]
    return [Step(1 / core.num_steps, _for_one(field)) for field in fields]


def _stack_of(core: nn.Module) -> TransformerStack:
    if not isinstance(core, TransformerStack):
        raise ConfigError(["params.yaml: sensitivity.runs: expected runs of `model: diffeqformer` or `transformer`"])
    return core


def _for_one(field: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A field of batches (B, N, D) for one state (N, D); with the attention kernel that has every derivative."""

    def of_one(y: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return field(y[None])[0]

    return of_one
