"""Perplexity of models whose distribution is known, and independence of how they are batched."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from depthtime.data.batching import Windows
from depthtime.evaluate.network import score_network
from depthtime.evaluate.perplexity import Score, score
from small_models import DISCRETE, ODE, model, windows


class Fixed(nn.Module):
    """Gives the same logits everywhere."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(torch.as_tensor(logits, dtype=torch.float64))

    def forward(self, tokens):
        return self.logits.expand(*tokens.shape, -1)


class Certain(nn.Module):
    """Knows that every word is followed by the next one."""

    def __init__(self, classes):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1e3))
        self.classes = classes

    def forward(self, tokens):
        return self.scale * nn.functional.one_hot((tokens + 1) % self.classes, self.classes)


def _stream(tokens, positions=4):
    starts = np.arange(0, len(tokens) - positions, positions)
    return Windows(np.asarray(tokens, dtype=np.uint16), starts, np.zeros_like(starts), positions)


def test_a_uniform_model_has_as_many_choices_as_classes():
    assert score_network(Fixed(np.zeros(7)), windows(num_classes=7), 8).perplexity == pytest.approx(7, rel=1e-12)


def test_a_certain_model_has_one_choice():
    assert score_network(Certain(5), _stream(np.arange(41) % 5), 3).perplexity == pytest.approx(1, rel=1e-12)


def test_a_fixed_unigram_scores_its_cross_entropy():
    tokens = [0, 0, 1, 0, 2, 0, 1, 0, 0]
    shares = np.array([0.5, 0.3, 0.2])
    counts = np.bincount(tokens[1:], minlength=3)  # the first token is read, not scored
    expected = math.exp(-(counts * np.log(shares)).sum() / counts.sum())
    found = score_network(Fixed(np.log(shares)), _stream(tokens), 2)
    assert found.num_scored == 8
    assert found.perplexity == pytest.approx(expected, rel=1e-12)


def test_the_entropy_of_the_data_is_the_perplexity_of_the_true_unigram():
    tokens = [0] + [0, 0, 1, 2] * 5
    entropy = -(0.5 * math.log(0.5) + 2 * 0.25 * math.log(0.25))
    found = score_network(Fixed(np.log([0.5, 0.25, 0.25])), _stream(tokens), 2)
    assert found.perplexity == pytest.approx(math.exp(entropy), rel=1e-12)


@pytest.mark.parametrize("run", [DISCRETE, ODE], ids=["discrete", "ode"])
def test_perplexity_does_not_depend_on_the_evaluation_batch(run):
    network, data = model(run).double(), windows(23)
    found = [score_network(network, data, size).perplexity for size in (1, 5, 23, 64)]
    assert found == pytest.approx([found[0]] * 4, rel=1e-12)


def test_tokens_already_scored_by_an_earlier_window_do_not_count():
    """Windows of 4 that move by 2 score each of 8 targets once, as windows that do not overlap."""
    tokens = np.array([0, 1, 2, 0, 1, 1, 2, 0, 2], dtype=np.uint16)
    overlapping = Windows(tokens, np.array([0, 2, 4]), np.array([0, 2, 2]), 4)
    shares = np.log([0.2, 0.5, 0.3])
    whole = score_network(Fixed(shares), _stream(tokens), 2)
    found = score_network(Fixed(shares), overlapping, 2)
    assert found.num_scored == overlapping.num_scored == whole.num_scored == 8
    assert found.total_nll_nats == pytest.approx(whole.total_nll_nats, rel=1e-12)


def test_scoring_leaves_the_model_as_it_was():
    network = model(ODE).train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    score_network(network, windows(), 8)
    assert network.training
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())


def test_sums_are_taken_in_float64():
    """2^24 + 1 ones: float32 would stop counting at 2^24."""
    total = score([np.full(2**24, 1.0, dtype=np.float32), np.ones(1, dtype=np.float32)])
    assert total.total_nll_nats == 2**24 + 1


def test_perplexity_of_a_hopeless_model_is_infinite_not_an_error():
    assert Score(8000.0, 10).perplexity == math.inf
