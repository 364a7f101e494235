"""Weights as functions of depth time: equal to the formulas written out, small at the start, and trained through."""

import math

import pytest
import torch

from depthtime.models.generated import ConstantLinear, GeneratedLinear, GeneratedNorm, time_features
from depthtime.models.pre_norm import normalise
from small_models import GPT, LLAMA
from tolerances import ROUNDING

EXACT = {"rtol": 0, "atol": ROUNDING[torch.float64]}
TIMES = [0.25, 0.5, 0.75, 1.0]


def _phi(t, s, scale=1000.0):
    """The features of one time, number by number."""
    angles = [scale * t * math.exp(-math.log(10000) * i / s) for i in range(s)]
    return [t, *map(math.sin, angles), *map(math.cos, angles)]


def _everything_random(module):
    """The module in float64 with every parameter drawn anew, so that no term is zero."""
    module = module.double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module


def _z(depth, phi):
    """z of one time: B2 silu(B1 phi + b1) + b2."""
    u = depth.inner.weight @ phi + depth.inner.bias
    return depth.outer.weight @ (u * torch.sigmoid(u)) + depth.outer.bias


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_features_are_those_written_out(scale):
    expected = torch.tensor([_phi(t, 7, scale) for t in TIMES], dtype=torch.float64)
    torch.testing.assert_close(time_features(TIMES, 7, scale), expected, rtol=0, atol=1e-10)
    assert time_features(TIMES, 7, scale).shape == (4, 15)


@torch.no_grad()
@pytest.mark.parametrize("has_bias", [True, False])
def test_generated_weights_are_those_written_out(has_bias):
    """W[i, o](t) = sum over j of P[j, i, o] z_j + C[i, o], one number at a time; b from Q, without a constant."""
    layer = _everything_random(GeneratedLinear(3, 5, sinusoids=7, features=4, has_bias=has_bias))
    phi = time_features(TIMES, 7, 1000.0)
    for row, found in zip(phi, layer(phi), strict=True):
        z = _z(layer.depth, row)
        weight = [
            [sum(layer.projection[j, i, o] * z[j] for j in range(4)) + layer.constant[i, o] for o in range(5)]
            for i in range(3)
        ]
        torch.testing.assert_close(found.weight, torch.tensor(weight, dtype=torch.float64), **EXACT)
        if has_bias:
            bias = [sum(layer.bias_projection[j, o] * z[j] for j in range(4)) for o in range(5)]
            torch.testing.assert_close(found.bias, torch.tensor(bias, dtype=torch.float64), **EXACT)
        else:
            assert found.bias is None


def test_weights_at_several_times_are_those_of_each_time_alone():
    layer = _everything_random(GeneratedLinear(3, 5, sinusoids=7, features=4, has_bias=True))
    phi = time_features(TIMES, 7, 1000.0)
    for number, together in enumerate(layer(phi)):
        alone = layer(phi[number : number + 1])[0]
        torch.testing.assert_close(together, alone, **EXACT)
    assert (layer(phi)[0].weight - layer(phi)[1].weight).abs().max() > 1e-2


@pytest.mark.parametrize("sizes", [GPT, LLAMA], ids=["gpt", "llama"])
def test_a_generated_norm_is_that_written_out(sizes):
    """(1 + F_w z) xhat + F_b z; xhat has unit variance about the mean (gpt) or about zero (llama)."""
    norm, y = GeneratedNorm(16, sinusoids=7, features=4), 3 + torch.randn(2, 5, 16, dtype=torch.float64)
    norm = _everything_random(norm)
    phi = time_features([0.5], 7, 1000.0)
    z = _z(norm.depth, phi[0])
    centred = y - y.mean(-1, keepdim=True) if sizes.form == "gpt" else y
    xhat = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    expected = (1 + z @ norm.gain_projection) * xhat + z @ norm.shift_projection
    torch.testing.assert_close(normalise(sizes, norm(phi)[0], y), expected, **EXACT)


@pytest.mark.parametrize(
    ("sinusoids", "features", "std"), [(128, 20, 0.0009), (128, 96, 0.0044), (128, 144, 0.0066), (256, 96, 0.0065)]
)
def test_weights_start_far_smaller_than_those_of_a_stack(sinusoids, features, std):
    """The published sizes give W(t) about this standard deviation, instead of 0.02, in the mean of five draws."""
    found = []
    for seed in range(5):
        torch.manual_seed(seed)
        layer = GeneratedLinear(64, 64, sinusoids=sinusoids, features=features, has_bias=True)
        found.append(layer(time_features([0.5], sinusoids, 1000.0).float())[0].weight.std().item())
    assert sum(found) / 5 == pytest.approx(std, rel=0.35)


def test_initialisation_of_every_part():
    layer = GeneratedLinear(96, 96, sinusoids=64, features=32, has_bias=True)
    assert layer.constant.abs().max() == 0
    for weight, std in (
        (layer.projection, 0.02), (layer.bias_projection, 1e-4), (layer.depth.inner.weight, 0.02),
        (layer.depth.outer.weight, 0.02),
    ):  # fmt: skip
        assert weight.std().item() == pytest.approx(std, rel=0.1)
    assert layer.depth.inner.bias.abs().max() == layer.depth.outer.bias.abs().max() == 0
    norm = GeneratedNorm(96, sinusoids=64, features=32)
    assert norm.gain_projection.abs().max() == norm.shift_projection.abs().max() == 0
    assert norm.depth.inner.weight.std().item() == pytest.approx(0.02, rel=0.1)
    constant = ConstantLinear(96, 96, has_bias=True)
    assert constant.constant.std().item() == pytest.approx(0.02, rel=0.1)
    assert constant.bias.abs().max() == 0
