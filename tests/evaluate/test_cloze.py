"""Last words: windows and questions written out by hand, and models whose answers are known."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from depthtime.evaluate.cloze import answer, answer_always, find_cloze, grade
from depthtime.integrate.fixed import Solution
from small_models import CLASSES, ODE, model

EOS, UNKNOWN, NUMBER = 0, 1, 2
#         0    1  2  3    4    5  6  7  8    9   10 11 12   13   14 15 16   17
STREAM = [EOS, 3, 4, 5, EOS, 6, 3, 7, 6, EOS, 8, 9, EOS, 3, 4, 1, EOS, 5, 5, 2, EOS, 7, 8, 5, EOS]


def _cloze(**changes):
    options = {"eos": EOS, "unknown": UNKNOWN, "not_asked": [NUMBER], "window": 4, "min_words": 3}
    return find_cloze(np.array(STREAM, dtype=np.uint16), **options | changes)


def test_questions_and_windows_are_those_written_out_by_hand():
    cloze = _cloze()
    assert cloze.targets.tolist() == [5, 6, 5]
    assert cloze.inputs.tolist() == [[EOS, 3, 4, 5], [EOS, 6, 3, 7], [2, EOS, 7, 8]]
    assert cloze.places.tolist() == [2, 3, 3]
    assert cloze.left_out == {"too_short": 1, "unknown": 1, "not_asked": 1}


def test_every_sentence_is_asked_or_counted_as_left_out():
    for min_words in (1, 3, 4, 5):
        cloze = _cloze(min_words=min_words)
        assert len(cloze.targets) + sum(cloze.left_out.values()) == 6


def test_a_word_is_repeated_where_it_occurs_before_its_place_in_the_window():
    assert _cloze().is_repeated.tolist() == [False, True, False]
    assert _cloze(window=8).is_repeated.tolist() == [False, True, True]  # the 5s two sentences before


def test_the_window_holds_the_words_before_the_asked_one_and_not_itself():
    cloze, asked = _cloze(window=6), [3, 8, 23]
    for row, (inputs, place) in enumerate(zip(cloze.inputs, cloze.places, strict=True)):
        seen = inputs[: place + 1].tolist()
        assert seen == STREAM[max(0, asked[row] - 6) : asked[row]]


class _Known(nn.Module):
    """Probabilities p_v after word v - 1, the rest shared: a model without an inside."""

    def __init__(self, table):
        super().__init__()
        self.table = nn.Parameter(torch.log(torch.tensor(table, dtype=torch.float64)))
        self.max_positions, self.head = 4, nn.Identity()

    def solve(self, tokens):
        return Solution(self.table[tokens], 0, 0, 0, "completed")


def test_a_model_of_known_probabilities_has_known_accuracy_and_ranks():
    table = np.full((10, 10), 0.05)
    table[4] = [0.02, 0.02, 0.02, 0.02, 0.02, 0.8, 0.04, 0.02, 0.02, 0.02]  # after 4 comes 5: right
    table[7] = [0.05, 0.05, 0.05, 0.05, 0.4, 0.2, 0.1, 0.05, 0.03, 0.02]  # after 7 comes 6: third
    table[8] = 0.1  # after 8 anything: 5 is one of seven
    found = answer(_Known(table), _cloze(), 2)
    assert found.ranks.tolist() == [1, 3, 4]
    assert found.is_right.tolist() == [1, 0, 0]
    assert found.log_probs == pytest.approx(np.log([0.8 / 0.94, 0.1 / 0.85, 1 / 7]))


def test_a_baseline_says_the_same_to_every_question():
    probabilities = np.array([0.1, 0.1, 0.1, 0.05, 0.05, 0.3, 0.2, 0.04, 0.03, 0.03])
    found = answer_always(probabilities, _cloze())
    assert found.ranks.tolist() == [1, 2, 1]
    assert found.log_probs == pytest.approx(np.log([3 / 7, 2 / 7, 3 / 7]))


def test_words_as_likely_as_the_right_one_count_half():
    _, ranks = grade(torch.zeros(1, 5, dtype=torch.float64), np.array([2]), ())
    assert ranks.tolist() == [3]


def test_excluded_words_are_no_answer():
    logits = torch.tensor([[9.0, 1.0, 0.0, 1.0]], dtype=torch.float64)
    log_probs, ranks = grade(logits, np.array([1]), (0, 3))
    assert ranks.tolist() == [1]
    assert log_probs == pytest.approx([1 - np.log(np.e + 1)])
    assert _cloze().excluded == (EOS, UNKNOWN, NUMBER)


def test_answers_are_those_of_the_full_model_whatever_the_batch():
    stream = np.random.default_rng(0).integers(1, CLASSES, 200)
    stream[::7] = 0
    cloze = find_cloze(stream, eos=0, unknown=None, not_asked=[], window=9, min_words=2)
    network = model(ODE).double().eval()
    first, second = answer(network, cloze, 3), answer(network, cloze, 50)
    assert first.log_probs == pytest.approx(second.log_probs, abs=1e-12)
    assert (first.ranks == second.ranks).all()
    for row in (0, 1, len(cloze.targets) - 1):
        seen = torch.from_numpy(cloze.inputs[row, : cloze.places[row] + 1])[None]
        expected = network(seen)[0, -1, 1:].log_softmax(-1)[cloze.targets[row] - 1]
        assert first.log_probs[row] == pytest.approx(expected.item(), abs=1e-10)
    assert math.isfinite(first.log_probs.sum())
