"""DiffEqFormer: a transformer layer whose weights are functions of depth time, integrated over depth time.

dy/dt = Attention_t(N1_t(y)) + FFN_t(N2_t(y)) on [0, 1]. The published model is `solver: euler_right` in L steps: layer
k = 1 ... L adds 1/L of the update with the weights at t = k/L.
Source: Neural ODE Transformers (ICLR 2025), and its released code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from depthtime.config import DiffEqFormerRun, FormSizes
from depthtime.integrate.fixed import Solution, solve_fixed
from depthtime.integrate.tableaus import TABLEAUS
from depthtime.models.cache import DepthCache, KeyValues, slots
from depthtime.models.generated import ConstantLinear, ConstantNorm, GeneratedLinear, GeneratedNorm, time_features
from depthtime.models.layer_weights import Affine, BlockWeights, LayerWeights, matrices_at
from depthtime.models.pre_norm import flops_per_token, parallel_update
from depthtime.models.transformer_lm import TransformerLM


class DiffEqFormer(nn.Module):
    """One generator for each matrix and norm of a layer; queries, keys and values share one in the gpt form.

    Weight decay, as in the source: in the gpt form on embeddings only, and with `decays_generators` on the matrices P,
    B1 and B2 of the generators, too (never on C, Q, F or biases); in the llama form on everything.
    """

    def __init__(self, run: DiffEqFormerRun, sizes: FormSizes) -> None:
        super().__init__()
        self.run, self.sizes = run, sizes
        is_gpt = sizes.form == "gpt"
        kind = {"sinusoids": run.sinusoids, "features": run.depth_features}

        def linear(in_width: int, out_width: int) -> GeneratedLinear | ConstantLinear:
            if run.depth_features:
                return GeneratedLinear(in_width, out_width, has_bias=is_gpt, **kind)
            return ConstantLinear(in_width, out_width, has_bias=is_gpt)

        def norm() -> GeneratedNorm | ConstantNorm:
            return GeneratedNorm(width, **kind) if run.depth_features else ConstantNorm(width, has_shift=is_gpt)

        width, ff_width = sizes.width, sizes.ff_width
        self.norm1 = norm()
        self.qkv = nn.ModuleList([linear(width, 3 * width)] if is_gpt else [linear(width, width) for _ in range(3)])
        self.attention_out = linear(width, width)
        self.norm2 = norm()
        self.ff_in = linear(width, ff_width)
        self.ff_gate = None if is_gpt else linear(width, ff_width)
        self.ff_out = linear(ff_width, width)

    @property
    def num_steps(self) -> int:
        return self.run.num_steps

    @property
    def decayed(self) -> re.Pattern[str] | None:
        """Names of the model's parameters that weight decay acts on; None: on all."""
        if self.sizes.form == "llama":
            return None
        generators = r"|core\..*\.(projection|depth\.(inner|outer)\.weight)" if self.run.decays_generators else ""
        return re.compile(rf"embedding\.weight|position_table{generators}")

    def generate(self, times: Sequence[float]) -> list[BlockWeights]:
        """The weights of the layer at each depth time; each generator computes its own at all times in one product."""
        phi = time_features(times, self.run.sinusoids, self.run.time_scale).to(next(self.parameters()))
        columns = (
            self.norm1(phi),
            [_side_by_side(parts) for parts in zip(*(generator(phi) for generator in self.qkv), strict=True)],
            self.attention_out(phi),
            self.norm2(phi),
            self.ff_in(phi),
            [None] * len(times) if self.ff_gate is None else self.ff_gate(phi),
            self.ff_out(phi),
        )
        return [BlockWeights(*row) for row in zip(*columns, strict=True)]

    def vector_field(
        self, t: float, y: Tensor, past: KeyValues | None = None, weights: BlockWeights | None = None
    ) -> Tensor:
        """dy/dt (B, N, D) at depth time t for a state (B, N, D); `weights`, where known already, are those at t."""
        dropout = self.sizes.dropout if self.training else 0.0
        weights = weights or self.generate([t])[0]
        return parallel_update(self.sizes, weights, y, past, dropout=dropout).to(y.dtype)

    def times(self) -> list[float]:
        """The depth times at which a forward pass evaluates the field, each once, in order."""
        h = 1 / self.run.num_steps
        nodes = TABLEAUS[self.run.solver].c
        return list(dict.fromkeys(step * h + node * h for step in range(self.run.num_steps) for node in nodes))

    def forward(self, y: Tensor, cache: DepthCache | None = None) -> Solution:
        """State (B, N, D) at t = 0 -> Solution at t = 1; `cache` holds earlier positions, a slot an evaluation.

        Raises: ValueError in training with dropout and a scheme of several stages, whose masks would differ by stage.
        """
        tableau, past = TABLEAUS[self.run.solver], slots(cache)
        if self.training and self.sizes.dropout > 0 and tableau.num_stages > 1:
            raise ValueError(f"dropout = {self.sizes.dropout} with solver {tableau.name}: expected one stage a step")
        times = self.times()
        weights = dict(zip(times, self.generate(times), strict=True))
        return solve_fixed(
            lambda t, state: self.vector_field(t, state, next(past), weights[t]),
            y,
            tableau=tableau,
            num_steps=self.run.num_steps,
        )

    @torch.no_grad()
    def layer_weights(self) -> list[LayerWeights]:
        """The matrices at the times of a forward pass: t = k/L, k = 1 ... L, with `euler_right`."""
        times = self.times()
        return [matrices_at(t, weights) for t, weights in zip(times, self.generate(times), strict=True)]

    def flops_per_token(self, positions: int) -> int:
        """Those of the layers alone: weights are generated once a pass, however many tokens it has."""
        return TABLEAUS[self.run.solver].num_stages * self.run.num_steps * flops_per_token(self.sizes, positions)

    def num_matrix_entries(self) -> int:
        """Numbers of the matrices of one layer, generated or constant."""
        width, ff_width = self.sizes.width, self.sizes.ff_width
        return 4 * width**2 + (2 if self.ff_gate is None else 3) * width * ff_width

    def generator_flops(self) -> int:
        """Operations of one forward pass to generate its matrices: 2 e an entry and time. The networks z are small."""
        return 2 * self.run.depth_features * self.num_matrix_entries() * len(self.times())


def build_model(run: DiffEqFormerRun, sizes: FormSizes, *, num_classes: int, max_positions: int) -> TransformerLM:
    """The model that a row `model: diffeqformer` asks for."""
    model = TransformerLM(sizes, num_classes=num_classes, max_positions=max_positions)
    model.core = DiffEqFormer(run, sizes)
    return model


def _side_by_side(parts: Sequence[Affine]) -> Affine:
    """Query, key and value of the llama form, which have no biases, as one matrix; one of the gpt form as it is."""
    return parts[0] if len(parts) == 1 else Affine(torch.cat([part.weight for part in parts], dim=1), None)
