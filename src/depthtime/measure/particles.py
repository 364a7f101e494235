"""Tokens as particles: attention alone moves them, with weights that are constant or change over time.

One layer of attention without output projection, feed-forward network and positions, applied again and again as an
Euler method. What is left of a transformer shows whether its weights draw the tokens together.
Source: the clustering simulation of Neural ODE Transformers (ICLR 2025), released code; the shared weights are those of
Geshkovski, Letrouit, Polyanskiy, Rigollet (2023), The emergence of clusters in self-attention dynamics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.special import softmax

Array = NDArray[np.float64]
Weights = Callable[[float], Array]  # time -> matrices that broadcast to (H, S, d, d), each acting as z @ W
Drift = Callable[[float, Array], Array]  # (time, tokens (S, n, d)) -> their velocity (S, n, d)

Growth = Callable[[float], float]
GROWTH: dict[str, Growth] = {  # A(t) = A0 g(t), V(t) = V0 g(t)
    "g_t": lambda t: t,
    "g_t2": lambda t: t**2,
    "g_t4": lambda t: t**4,
    "g_cos": lambda t: math.cos(2 * math.pi * t),
    "g_late": lambda t: (t / 10) ** 4,
    "g_abs_cos": lambda t: abs(math.cos(2 * math.pi * t)),  # control of g_cos: no change of sign
}


@dataclass(frozen=True)
class System:
    """A drift, whether tokens are standardised before each step, and the factor g of its weights over time."""

    drift: Drift
    standardises: bool = True
    growth: Growth = lambda t: 1.0


def simulate(system: System, start: Array, *, step_size: float, num_steps: int) -> Iterator[tuple[float, Array]]:
    """Yield (t, tokens) at t = 0 and after each Euler step, the drift taken where the step begins.

    Args:    start: tokens (S, n, d) of S independent systems; the state after a step is not standardised again, only
             the next step does that.
    """
    tokens = start
    yield 0.0, tokens
    for step in range(num_steps):
        tokens = standardise(tokens) if system.standardises else tokens
        tokens = tokens + step_size * system.drift(step * step_size, tokens)
        yield (step + 1) * step_size, tokens


def standardise(tokens: Array) -> Array:
    """Each token with mean 0 and variance 1 over its d features, as a layer norm without gain gives it."""
    centred = tokens - tokens.mean(axis=-1, keepdims=True)
    return np.asarray(centred / centred.std(axis=-1, keepdims=True))


def attention_drift(scores: Weights, values: Weights, *, is_causal: bool = False) -> Drift:
    """Velocity softmax(z A(t) z^T) z V(t), the softmax over the tokens attended to; heads are added up.

    Args:    scores: A(t), such as W_Q W_K^T of each head, its factor 1 / sqrt(D/H) included; values: V(t), such as
             W_V W_O of each head. `is_causal`: a token attends to itself and earlier ones.
    """

    def drift(t: float, tokens: Array) -> Array:
        z = tokens[None]  # (1, S, n, d)
        attention = _attention(z @ scores(t) @ z.swapaxes(-1, -2), is_causal)  # (H, S, n, n)
        return np.asarray((attention @ (z @ values(t))).sum(axis=0))

    return drift


def rescaled_drift(scores: Array, values: Array) -> Drift:
    """Velocity of z = x expm(-t V), where x moves by attention with constant A and V and is never standardised.

    x' = S x V becomes z' = S z V - z V with S = softmax(x A x^T), x = z expm(t V).
    Source: Geshkovski et al. (2023), section 1. The released code multiplies A before expm(t V), which is the same only
    where both commute, as they do here (A = V = I).
    """

    def drift(t: float, tokens: Array) -> Array:
        x = tokens @ expm(t * values)
        moved = tokens @ values
        return np.asarray(_attention(x @ scores @ x.swapaxes(-1, -2), False) @ moved - moved)

    return drift


def _attention(scores: Array, is_causal: bool) -> Array:
    """Rows that sum to 1, of scores (..., n, n)."""
    if is_causal:
        scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
    return np.asarray(softmax(scores, axis=-1))


def draw(seeds: int, tokens: int, width: int) -> tuple[Array, Array, Array]:
    """Tokens uniform in [-2, 2] (S, n, d) and standard normal A0 and V0 (S, d, d) of seeds 0 .. S - 1.

    Every choice of weights gets these same draws, so that seeds can be paired.
    """
    drawn = []
    for seed in range(seeds):
        source = np.random.default_rng([seed, width])
        size = (width, width)
        drawn.append((source.uniform(-2, 2, (tokens, width)), source.normal(size=size), source.normal(size=size)))
    start, first, second = zip(*drawn, strict=True)
    return np.stack(start), np.stack(first), np.stack(second)


def choices(first: Array, second: Array) -> dict[str, System]:
    """Every choice of weights by name, from A0 (S, d, d) and V0 (S, d, d); scores are (z A)(z A)^T.

    identity       A = V = I: the polytope of Geshkovski et al.
    identity_soft  the same with scores over sqrt(d), as in a transformer
    repelling      A = I, V = -I
    hyperplanes    A = I, V = |V0|
    random         A = A0, V = |V0|
    gaussian       A = A0, V = V0
    gaussian_weak  A = A0 / 5, V = V0 / 5: control of g_late, whose integral up to t = 10 this is
    rescaled       A = V = I in the coordinates of `rescaled_drift`
    g_...          A = A0 g(t), V = V0 g(t), g from GROWTH
    """
    width = first.shape[-1]
    unit, gram = np.eye(width), first @ first.swapaxes(-1, -2)
    return {
        "identity": _attending(unit, unit),
        "identity_soft": _attending(unit / math.sqrt(width), unit),
        "repelling": _attending(unit, -unit),
        "hyperplanes": _attending(unit, np.abs(second)),
        "random": _attending(gram, np.abs(second)),
        "gaussian": _attending(gram, second),
        "gaussian_weak": _attending(gram, second, lambda t: 0.2),
        "rescaled": System(rescaled_drift(unit, unit), standardises=False),
        **{name: _attending(gram, second, g) for name, g in GROWTH.items()},
    }


def _attending(scores: Array, values: Array, g: Growth = lambda t: 1.0) -> System:
    """Attention with A = A0 g(t) in both factors of the scores, and V = V0 g(t)."""
    return System(attention_drift(lambda t: g(t) ** 2 * scores, lambda t: g(t) * values), growth=g)
