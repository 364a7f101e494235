"""n-grams of the 12 words, each count and probability worked out by hand, and a plain twin on longer text."""

from collections import Counter, defaultdict
from fractions import Fraction as F

import numpy as np
import pytest

import tiny_corpus
from depthtime.baselines.ngram import AddAlpha, estimate_discounts, events, fit_add_alpha, fit_kneser_ney
from depthtime.data.batching import Windows

V = tiny_corpus.TWELVE_CLASSES
UNK, THE, CAT, ON, SAT, HAT, MAT, DEAD = range(V)
TRAIN = events(tiny_corpus.twelve_windows(), 3, V, within_windows=True)


def probability(model, word, *history):
    """P(word | history), nearest history word first."""
    return float(model.probabilities(np.array([[word], *([h] for h in history)], dtype=np.int32))[0])


def test_events_are_targets_with_their_histories():
    the_cat_sat_on = TRAIN[:, :3].tolist()
    assert the_cat_sat_on == [[CAT, SAT, ON], [THE, CAT, SAT], [V, THE, CAT]]  # V: nothing before the first word
    assert TRAIN.shape == (3, 11)


def test_histories_stop_at_the_window_or_run_through_the_stream():
    windows = Windows(np.arange(7), np.array([0, 3]), np.array([0, 1]), 3)
    assert events(windows, 3, 99, within_windows=True).tolist() == [
        [1, 2, 3, 5, 6],
        [0, 1, 2, 4, 5],
        [99, 0, 1, 3, 4],
    ]
    windows = Windows(np.arange(7), np.array([0, 3]), np.array([0, 0]), 3)
    assert events(windows, 3, 99, within_windows=True)[2].tolist() == [99, 0, 1, 99, 3, 4]
    assert events(windows, 3, 99, within_windows=False)[2].tolist() == [99, 0, 1, 2, 3, 4]


def test_unigram_is_relative_frequency():
    model = fit_add_alpha(TRAIN, 1, V, 0.0)
    expected = {
        THE: F(3, 11),
        CAT: F(2, 11),
        SAT: F(2, 11),
        ON: F(2, 11),
        MAT: F(1, 11),
        HAT: F(1, 11),
        UNK: 0,
        DEAD: 0,
    }
    assert {w: probability(model, w) for w in range(V)} == pytest.approx({w: float(p) for w, p in expected.items()})


def test_bigram_counts_are_those_of_the_twelve_words():
    level = fit_add_alpha(TRAIN, 2, V, 1.0).levels[1]
    history = level.contexts[level.grams // (V + 1)]
    counted = dict(
        zip(zip(history.tolist(), (level.grams % (V + 1)).tolist(), strict=True), level.counts.tolist(), strict=True)
    )
    assert counted == {
        (THE, CAT): 2,
        (THE, MAT): 1,
        (THE, HAT): 1,
        (CAT, SAT): 2,
        (SAT, ON): 2,
        (ON, THE): 2,
        (MAT, THE): 1,
    }
    assert dict(zip(level.contexts.tolist(), level.totals.tolist(), strict=True)) == {
        THE: 4,
        CAT: 2,
        SAT: 2,
        ON: 2,
        MAT: 1,
    }


def test_bigram_add_one():
    model = fit_add_alpha(TRAIN, 2, V, 1.0)
    assert probability(model, CAT, THE) == pytest.approx((2 + 1) / (4 + 8))
    assert probability(model, THE, CAT) == pytest.approx(1 / (2 + 8))
    assert probability(model, THE, HAT) == pytest.approx(1 / 8)  # "hat" was never followed by anything


def test_bigram_without_smoothing_gives_zero_not_nan():
    model = fit_add_alpha(TRAIN, 2, V, 0.0)
    assert (probability(model, CAT, THE), probability(model, ON, THE), probability(model, CAT, HAT)) == (0.5, 0.0, 0.0)


def test_kneser_ney_bigram_by_hand():
    """Order 2: n1 = 3, n2 = 4, n3 = 0, so D = 3/11. Order 1: "the" follows two words, five words one, so D = 5/7."""
    model = fit_kneser_ney(TRAIN, 2, V)
    assert model.discounts[1] == pytest.approx((3 / 11,) * 3)
    assert model.discounts[0] == pytest.approx((5 / 7,) * 3)
    lower = {THE: F(51, 196), CAT: F(23, 196), DEAD: F(15, 196)}
    assert lower[THE] == (2 - F(5, 7)) / 7 + F(6 * 5, 7 * 7) * F(1, V)
    assert probability(model, THE, HAT) == pytest.approx(float(lower[THE]))  # unseen history
    assert probability(model, DEAD, UNK) == pytest.approx(float(lower[DEAD]))
    gamma = F(3 * 3, 11 * 4)  # three different words follow "the", four events
    assert probability(model, CAT, THE) == pytest.approx(float((2 - F(3, 11)) / 4 + gamma * lower[CAT]))
    assert probability(model, DEAD, THE) == pytest.approx(float(gamma * lower[DEAD]))


def test_modified_discounts_by_hand():
    """n1 = 10, n2 = 4, n3 = 2, n4 = 1: Y = 10/18."""
    counts = np.repeat([1, 2, 3, 4, 9], [10, 4, 2, 1, 3])
    expected = (1 - 2 * F(10, 18) * F(4, 10), 2 - 3 * F(10, 18) * F(2, 4), 3 - 4 * F(10, 18) * F(1, 2))
    assert estimate_discounts(counts) == pytest.approx(tuple(map(float, expected)))


def test_discounts_of_tiny_texts_fall_back():
    assert estimate_discounts(np.array([1, 1, 2])) == pytest.approx((0.5, 0.5, 0.5))
    assert estimate_discounts(np.array([1, 1, 1])) == (0.5, 0.5, 0.5)
    assert estimate_discounts(np.array([7])) == (0.5, 0.5, 0.5)


def longer_text():
    """600 targets of 12 classes in windows of 30, the last classes never seen."""
    tokens = np.random.default_rng(1).choice(10, size=620, p=np.arange(10, 0, -1) / 55)
    return events(Windows(tokens, np.arange(0, 600, 31), np.zeros(20, dtype=int), 30), 4, 12, within_windows=True)


@pytest.mark.parametrize("order", [2, 3, 4])
def test_kneser_ney_sums_to_one_for_every_history(order):
    train = longer_text()
    model = fit_kneser_ney(train, order, 12)
    rng = np.random.default_rng(2)
    histories = np.concatenate([train[1:order, ::7], rng.integers(0, 13, size=(order - 1, 50))], axis=1)  # seen, random
    total = np.zeros(histories.shape[1])
    for word in range(12):
        total += model.probabilities(np.vstack([np.full(histories.shape[1], word), histories]))
    np.testing.assert_allclose(total, 1.0, rtol=1e-12)


@pytest.mark.parametrize("alpha", [0.01, 1.0])
def test_add_alpha_sums_to_one_for_every_history(alpha):
    model = fit_add_alpha(longer_text(), 2, 12, alpha)
    histories = np.arange(13)
    total = sum(model.probabilities(np.vstack([np.full(13, word), histories])) for word in range(12))
    np.testing.assert_allclose(total, 1.0, rtol=1e-12)


class PlainKneserNey:
    """The same model with dictionaries of tuples, (word, nearest history word, ...): the readable twin."""

    def __init__(self, train, order, classes):
        grams = [tuple(column) for column in train[:order].T.tolist()]
        self.counts = {order: Counter(grams)}
        for m in range(order - 1, 0, -1):
            self.counts[m] = Counter(gram[:m] for gram in set(self.counts[m + 1]))
        self.classes = classes
        self.discounts = {m: (0.0, *estimate_discounts(np.array(list(c.values())))) for m, c in self.counts.items()}
        self.followers = {m: defaultdict(list) for m in self.counts}
        for m, counted in self.counts.items():
            for gram, count in counted.items():
                self.followers[m][gram[1:]].append(count)

    def p(self, gram):
        if not gram:
            return 1 / self.classes
        m, lower = len(gram), self.p(gram[:-1])
        following = self.followers[m].get(gram[1:])
        if following is None:
            return lower
        total, discount, count = sum(following), self.discounts[m], self.counts[m][gram]
        left = sum(discount[min(c, 3)] for c in following)
        return (count - discount[min(count, 3)] + left * lower) / total


@pytest.mark.parametrize("order", [2, 3, 4])
def test_kneser_ney_equals_its_plain_twin(order):
    train = longer_text()
    fast, plain = fit_kneser_ney(train, order, 12), PlainKneserNey(train, order, 12)
    probe = np.random.default_rng(3).integers(0, 12, size=(order, 300))
    for grams in (train[:order], probe):
        np.testing.assert_allclose(
            fast.probabilities(grams), [plain.p(tuple(column)) for column in grams.T.tolist()], rtol=1e-12
        )


def test_keys_of_large_vocabularies_do_not_overflow():
    """Order 5 over 250,000 classes: packed words would need 90 bits."""
    tokens = np.random.default_rng(4).integers(0, 250_000, size=400)
    train = events(Windows(tokens, np.array([0]), np.array([0]), 399), 5, 250_000, within_windows=True)
    fast, plain = fit_kneser_ney(train, 5, 250_000), PlainKneserNey(train, 5, 250_000)
    np.testing.assert_allclose(fast.probabilities(train), [plain.p(tuple(c)) for c in train.T.tolist()], rtol=1e-12)


def test_a_model_is_frozen():
    model = fit_add_alpha(TRAIN, 1, V, 1.0)
    assert isinstance(model, AddAlpha)
    with pytest.raises(AttributeError):
        model.alpha = 2.0
