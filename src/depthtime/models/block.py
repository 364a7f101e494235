"""The post-norm transformer block: a layer of the discrete stack, and the vector field of the continuous model."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from depthtime.models.attention import CausalSelfAttention
from depthtime.models.cache import KeyValues


class PostNormBlock(nn.Module):
    """a = LN1(y + Attention(y)); output = LN2(a + FFN(a)), with FFN = Linear, GELU (tanh form), Linear.

    Linear layers start Glorot uniform with zero bias, norms with gain 1, bias 0, eps 1e-5.
    Source: ContinuumLM, model section.
    """

    def __init__(self, width: int, heads: int, ff_width: int) -> None:
        super().__init__()
        self.attention = CausalSelfAttention(width, heads)
        self.norm1 = nn.LayerNorm(width, eps=1e-5)
        self.ff_in = nn.Linear(width, ff_width)
        self.ff_out = nn.Linear(ff_width, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-5)
        for layer in (self.ff_in, self.ff_out):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, y: Tensor, past: KeyValues | None = None) -> Tensor:
        """State (B, N, D) -> normalised state (B, N, D); `past` holds earlier positions when decoding."""
        a = self.norm1(y + self.attention(y, past))
        return self.norm2(a + self.ff_out(functional.gelu(self.ff_in(a), approximate="tanh")))

    def flops_per_token(self, positions: int) -> int:
        """Multiply-adds of the matrix products, counted as two operations, in a window of N positions.

        Attention is counted in full, N keys a query, as the dense product computes it.
        """
        width, ff_width = self.ff_in.in_features, self.ff_in.out_features
        return 2 * (4 * width * width + 2 * width * ff_width) + 4 * positions * width
