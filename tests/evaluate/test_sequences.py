"""Log-probabilities of words: equal to the word-by-word twin, and over long texts to the study's own scoring."""

import numpy as np
import pytest
import torch

from depthtime.data.batching import Windows
from depthtime.data.splitting import scoring_windows
from depthtime.evaluate.network import score_network
from depthtime.evaluate.sequences import log_probs_reference, score_sequences
from small_models import CLASSES, GPT, ODE, POSITIONS, TRANSFORMER, model


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return model(ODE).double().eval()


def _words(count, seed=0):
    return np.random.default_rng(seed).integers(0, CLASSES, count).tolist()


def test_words_of_sentences_are_scored_as_one_by_one(network):
    sequences = [(_words(n, seed), first) for seed, (n, first) in enumerate([(5, 1), (10, 1), (2, 1), (7, 4), (10, 9)])]
    found = score_sequences(network, sequences, 3)
    for (words, first), scored in zip(sequences, found, strict=True):
        assert scored.log_probs == pytest.approx(log_probs_reference(network, words, first), abs=1e-10)


def test_neighbours_in_the_batch_and_their_order_do_not_matter(network):
    sequences = [(_words(n, n), 1) for n in (3, 9, 5, 10, 4)]
    together = score_sequences(network, sequences, 5)
    backwards = score_sequences(network, sequences[::-1], 2)[::-1]
    for a, b in zip(together, backwards, strict=True):
        assert a.log_probs == pytest.approx(b.log_probs, abs=1e-12)
        assert (a.is_top == b.is_top).all()


@pytest.mark.parametrize("stride", [9, 4, 1])
@pytest.mark.parametrize("length", [10, 11, 28, 29, 40])
def test_a_long_text_is_scored_as_the_study_scores_it(network, length, stride):
    stream = np.array(_words(length), dtype=np.uint16)
    windows = Windows(stream, *scoring_windows(length, POSITIONS, stride, "here"), POSITIONS)
    (found,) = score_sequences(network, [(stream.tolist(), 1)], 4, stride)
    expected = score_network(network, windows, 4)
    assert len(found.log_probs) == expected.num_scored
    assert -found.log_probs.sum() == pytest.approx(expected.total_nll_nats, rel=1e-10)


def test_a_few_words_after_a_long_context_see_a_full_window(network):
    words = _words(30)
    (found,) = score_sequences(network, [(words, 27)], 4)
    expected = log_probs_reference(network, words[-POSITIONS - 1 :], POSITIONS - 2)
    assert found.log_probs == pytest.approx(expected, abs=1e-10)


def test_a_word_is_top_when_no_other_is_likelier(network):
    words = _words(6)
    likeliest = int(network(torch.tensor([words]))[0, -1].argmax())
    top, other = score_sequences(network, [([*words, likeliest], 6), ([*words, (likeliest + 1) % CLASSES], 6)], 2)
    assert (top.is_top.tolist(), other.is_top.tolist()) == ([True], [False])


def test_a_pre_norm_model_is_scored_alike():
    network = model(TRANSFORMER, sizes=GPT).double().eval()
    words = _words(8)
    (found,) = score_sequences(network, [(words, 1)], 1)
    assert found.log_probs == pytest.approx(log_probs_reference(network, words, 1), abs=1e-10)
