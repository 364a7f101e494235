"""Exact decoding: the logits of a full forward pass, without a second look at earlier positions.

**The rule beyond the window.** A model was trained on N positions and is never asked about another one. Words fill the
window from position 0. A word that finds it full starts a new one: the last floor(N / 2) words before it are read again
at positions 0, 1, ..., the cache holds those only, and decoding goes on. So a word is predicted from at least N / 2 and
at most N words, and reading again costs about one more pass over each word. The source instead slides its window by one
word each time, which moves every position and leaves nothing to cache; it also uses one position more than it trains
(its chunks of 64 words give 63 predictions). Our position table has exactly the trained positions, 63 there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from depthtime.config import Integrated, Part
from depthtime.errors import DepthtimeError
from depthtime.integrate.tableaus import ADAPTIVE
from depthtime.models.cache import DepthCache
from depthtime.models.language_model import LanguageModel


class Decoder:
    """Decodes a batch of sequences of equal length; words arrive in any split and may run past the window.

    `window` is N, by default all positions of the model. A model with an adaptive solver must not come here; the model
    does not know, its row does: see `refuse_adaptive`.
    """

    def __init__(self, model: LanguageModel, *, window: int | None = None) -> None:
        self.model, self.window = model, _window(model, window)
        self._cache = DepthCache(self.window)
        self._held: Tensor | None = None  # (B, n): the words in the cache, at positions 0 ... n - 1

    @torch.inference_mode()
    def feed(self, tokens: Tensor) -> Tensor:
        """Word ids (B, n), n >= 1, that follow those fed before -> logits (B, n, V) of the word after each.

        Raises: ValueError when n = 0 or B is not that of the words before.
        """
        return self.model.head(self._states(tokens))

    @torch.inference_mode()
    def feed_last(self, tokens: Tensor) -> Tensor:
        """As `feed`, with the head applied to the last position only -> logits (B, V)."""
        return self.model.head(self._states(tokens)[:, -1])

    def _states(self, tokens: Tensor) -> Tensor:
        """Word ids (B, n) -> states after the core (B, n, D), a window at a time."""
        held = tokens[:, :0] if self._held is None else self._held
        if not tokens.shape[1] or len(tokens) != len(held):
            raise ValueError(f"word ids of shape {tuple(tokens.shape)}, expected ({len(held)}, 1 or more)")
        states = []
        for new in _fit(tokens, self.window, held.shape[1]):
            if held.shape[1] == self.window:
                held = held[:, self.window - self.window // 2 :]
                self._cache = DepthCache(self.window)
            held = torch.cat([held, new], dim=1)
            y = self.model.solve(held[:, self._cache.length :], self._cache).y
            states.append(y[:, -new.shape[1] :])
        self._held = held
        return torch.cat(states, dim=1) if len(states) > 1 else states[0]


def _fit(tokens: Tensor, window: int, held: int) -> tuple[Tensor, ...]:
    """Words (B, n) cut where a window is full, when `held` words are in it already."""
    if held + tokens.shape[1] <= window:
        return (tokens,)
    ends = range(window - held, tokens.shape[1], window - window // 2)
    return tuple(piece for piece in torch.tensor_split(tokens, tuple(ends), dim=1) if piece.shape[1])


@torch.no_grad()
def recompute(model: LanguageModel, tokens: Tensor, *, window: int | None = None) -> Tensor:
    """Logits (B, n, V) of word ids (B, n) under the rule of this module: a full forward pass for each, no cache.

    The simple twin of `Decoder`, for tests and measurements.
    """
    window = _window(model, window)
    ends = range(1, tokens.shape[1] + 1)
    return torch.stack([model(tokens[:, window_start(end - 1, window) : end])[:, -1] for end in ends], dim=1)


def window_start(index: int, window: int) -> int:
    """Which word, counted from 0, is at position 0 when word `index` is read in windows of N = `window` positions."""
    stride = window - window // 2
    return 0 if index < window else ((index - window) // stride + 1) * stride


def _window(model: LanguageModel, window: int | None) -> int:
    longest = model.max_positions
    if window is not None and not 1 <= window <= longest:
        raise ValueError(f"window = {window}, expected 1 to {longest}, the positions of the model")
    return longest if window is None else window


def refuse_adaptive(run: Part, name: str) -> None:
    """Raise DepthtimeError when the row `run`, called `name`, integrates with an adaptive solver."""
    if isinstance(run, Integrated) and run.solver in ADAPTIVE:
        raise DepthtimeError(
            f"{name}: solver {run.solver} is adaptive, so nothing can be cached: it picks its steps by an error over "
            "the whole batch and every position, and a later word would change the states of earlier ones; "
            "generate from a run with a fixed-step solver, such as rk4"
        )
