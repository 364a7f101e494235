"""Deletion, gradient and attention as importance, on models and maps where the answer is known."""

import pytest
import torch
from torch.nn import functional

from depthtime.measure.importance import (
    attention_rollout,
    deletion_effect,
    gradient_times_input,
    prediction,
    references,
)
from small_models import DIFFEQFORMER, GPT, TRANSFORMER, model
from tolerances import HALF_DIGITS, ROUNDING

WORDS = [3, 1, 7, 2, 5]


class Sum(torch.nn.Module):
    """Logits that are the sum of the words' embeddings: deletion and gradient can be worked out by hand."""

    def __init__(self):
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.embedding = torch.nn.Embedding(12, 6, _weight=torch.randn(12, 6, generator=draw, dtype=torch.float64))
        self.norm = self.head = torch.nn.Identity()

    def embed(self, tokens):
        return self.embedding(tokens)

    def core(self, y):
        return type("Solution", (), {"y": y.cumsum(dim=1)})

    def forward(self, tokens):
        return self.core(self.embed(tokens)).y


def network(run):
    found = model(run, sizes=GPT).double().eval().requires_grad_(False)
    for parameter in found.core.parameters():
        parameter.mul_(8)
    return found


@pytest.mark.parametrize("run", [DIFFEQFORMER, TRANSFORMER], ids=["diffeq", "gpt"])
def test_deleting_a_word_is_scoring_the_sentence_without_it(run):
    found = network(run)
    predicted, log_probability = prediction(found, WORDS)
    effect = deletion_effect(found, WORDS, predicted)
    for i in range(5):
        without = torch.tensor([WORDS[:i] + WORDS[i + 1 :]])
        log = float(functional.log_softmax(found(without)[0, -1], dim=-1)[predicted])
        assert float(effect[i]) == pytest.approx(abs(log - log_probability), abs=ROUNDING[torch.float64])
    assert int(found(torch.tensor([WORDS]))[0, -1].argmax()) == predicted


def test_gradient_times_input_of_a_sum_is_each_words_share():
    found = Sum()
    y = found.embed(torch.tensor(WORDS)).detach()
    logits = y.sum(dim=0)
    predicted = int(logits.argmax())
    gradient = functional.one_hot(torch.tensor(predicted), 6) - logits.softmax(dim=0)
    assert torch.allclose(gradient_times_input(found, WORDS, predicted), (y @ gradient).abs())


@pytest.mark.parametrize("run", [DIFFEQFORMER, TRANSFORMER], ids=["diffeq", "gpt"])
def test_gradient_times_input_is_the_slope_of_scaling_a_word(run):
    found, eps = network(run), 1e-6
    predicted, _ = prediction(found, WORDS)
    expected = []
    for i in range(5):
        logs = []
        for sign in (1, -1):
            y = found.embed(torch.tensor([WORDS])).detach().clone()
            y[0, i] *= 1 + sign * eps
            logs.append(float(found.head(found.norm(found.core(y).y))[0, -1].log_softmax(dim=-1)[predicted]))
        expected.append(abs(logs[0] - logs[1]) / (2 * eps))
    got = gradient_times_input(found, WORDS, predicted).tolist()
    assert got == pytest.approx(expected, abs=HALF_DIGITS[torch.float64])
    assert max(got) > 1e-3


def test_attention_that_looks_at_itself_rolls_out_to_itself():
    maps = [torch.eye(4, dtype=torch.float64).expand(2, 4, 4)] * 3
    assert attention_rollout(maps).tolist() == [0, 0, 0, 1]


def test_rollout_of_two_steps_is_worked_out_by_hand():
    """The last of three positions looks at the first in both steps; half of each step is the residual."""
    looks = torch.eye(3, dtype=torch.float64)
    looks[2] = torch.tensor([1.0, 0, 0])
    assert attention_rollout([looks[None], looks[None]]).tolist() == pytest.approx([0.75, 0, 0.25])


def test_rollout_takes_the_mean_of_heads_and_shares_add_up_to_1():
    draw = torch.Generator().manual_seed(0)
    heads = torch.rand(2, 4, 5, 5, generator=draw, dtype=torch.float64).tril()
    maps = heads / heads.sum(dim=-1, keepdim=True)
    mean = [each.mean(dim=0, keepdim=True) for each in maps]
    assert torch.allclose(attention_rollout(list(maps)), attention_rollout(mean))
    assert float(attention_rollout(list(maps)).sum()) == pytest.approx(1)


def test_references_hold_a_number_for_each_word():
    found = network(DIFFEQFORMER)
    states = [found.embed(torch.tensor([WORDS]))[0]] * 4
    held = references(found, WORDS, states)
    assert set(held) == {"deletion", "gradient", "rollout"}
    assert all(values.shape == (5,) and (values >= 0).all() for values in held.values())
