"""The next word from logits: temperature, then top-k, then top-p, then one draw for each sequence.

All functions are pure; a draw takes its randomness from the generator it is given. Ties are broken by class number,
lower first, so that the k words of top-k are always k words.
Source: ContinuumLM, generation section; top-p is the nucleus of Holtzman et al. (2020), section 3.1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from depthtime.errors import DepthtimeError


def check_options(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Raise DepthtimeError, naming the option, when a sampling option has no meaning."""
    if not 0 <= temperature < math.inf:
        raise DepthtimeError(f"temperature = {temperature}, expected a number >= 0 (0 takes the likeliest word)")
    if top_k is not None and top_k < 0:
        raise DepthtimeError(f"top_k = {top_k}, expected a whole number >= 0 (0 keeps all words)")
    if top_p is not None and not 0 <= top_p <= 1:
        raise DepthtimeError(f"top_p = {top_p}, expected a number from 0 to 1 (0 and 1 keep all words)")


def sample(
    logits: Tensor,
    *,
    temperature: float,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator,
) -> Tensor:
    """Logits (B, V) -> classes (B), on the CPU. Temperature 0 takes the largest logit and draws nothing.

    Raises: DepthtimeError for options without meaning and for logits that give no distribution.
    """
    probabilities, classes = kept(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    if temperature == 0:
        return classes[:, 0]
    cumulative = probabilities.cumsum(dim=-1)  # (B, V), unnormalised: what was cut has mass 0
    draws = torch.rand(len(logits), 1, dtype=torch.float64, generator=generator) * cumulative[:, -1:]
    places = (cumulative <= draws).sum(dim=-1, keepdim=True)
    last = (probabilities > 0).sum(dim=-1, keepdim=True) - 1  # a draw may round up to the whole mass
    return classes.gather(1, torch.minimum(places, last)).squeeze(1)


def distribution(logits: Tensor, *, temperature: float, top_k: int | None = None, top_p: float | None = None) -> Tensor:
    """Logits (B, V) -> the probabilities (B, V), float64, that `sample` draws from."""
    probabilities, classes = kept(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
    return torch.zeros_like(probabilities).scatter(1, classes, probabilities)


def kept(
    logits: Tensor, *, temperature: float, top_k: int | None = None, top_p: float | None = None
) -> tuple[Tensor, Tensor]:
    """Logits (B, V) -> probabilities (B, V), largest first, 0 where cut and not normalised again, and their classes."""
    check_options(temperature, top_k, top_p)
    logits = logits.detach().to(device="cpu", dtype=torch.float64)
    ordered, classes = logits.sort(dim=-1, descending=True, stable=True)
    if not ordered[:, 0].isfinite().all() or logits.isnan().any():
        what = "NaN" if logits.isnan().any() else "no largest finite value"
        raise DepthtimeError(f"the model gives logits with {what}: there is nothing to sample from; did it diverge?")
    gaps = ordered - ordered[:, :1]  # no overflow, however small the temperature
    if temperature == 0:
        probabilities = torch.zeros_like(gaps)
        probabilities[:, 0] = 1
        return probabilities, classes
    probabilities = (gaps / temperature).exp()
    if top_k:
        probabilities[:, top_k:] = 0
    if top_p and top_p < 1:
        share = probabilities.cumsum(dim=-1) / probabilities.sum(dim=-1, keepdim=True)
        before = share.roll(1, dims=-1)
        before[:, 0] = 0
        probabilities[before >= top_p - 1e-12] = 0  # 1e-12: 0.5 + 0.4 reaches 0.9, however it was rounded
    return probabilities, classes
