"""Cached decoding gives the logits of full forward passes, however words arrive and however many there are."""

import pytest
import torch

from depthtime.config import ContinuousRun, ContinuousVariantRun, SharedRun
from depthtime.errors import DepthtimeError
from depthtime.generate.decoder import Decoder, recompute, refuse_adaptive, window_start
from depthtime.integrate.tableaus import ADAPTIVE
from depthtime.measure.decoding import cached, random_lengths
from small_models import CLASSES, DISCRETE, ODE, POSITIONS, SIZES, model

SHARED = SharedRun(model="shared", layers=3, keep_weights=())
VARIANT = ContinuousVariantRun(
    model="continuous_variant",
    solver="midpoint",
    num_steps=2,
    gradient="direct",
    t0=0.0,
    t1=1.0,
    field="prenorm",
    reads_time=True,
    final_norm=True,
    keep_weights=(),
)
RUNS = {"discrete": DISCRETE, "ode": ODE, "shared": SHARED, "variant": VARIANT}
KINDS = pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
DTYPES = pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-4), (torch.float64, 1e-10)], ids=str)


def _words(batch, length, seed=1):
    return torch.randint(0, CLASSES, (batch, length), generator=torch.Generator().manual_seed(seed))


@KINDS
@DTYPES
def test_any_split_gives_the_logits_of_full_passes_also_beyond_the_window(run, dtype, within):
    network, words = model(run).to(dtype), _words(3, 4 * POSITIONS + 2)
    expected, generator = recompute(network, words), torch.Generator().manual_seed(5)
    for _ in range(12):
        lengths = random_lengths(words.shape[1], generator)
        torch.testing.assert_close(cached(network, words, lengths), expected, rtol=0, atol=within, msg=str(lengths))


@KINDS
def test_inside_the_window_every_split_in_two_agrees_with_one_forward_pass(run):
    network, words = model(run).double(), _words(4, POSITIONS)
    whole = network(words)
    for j in range(1, POSITIONS):
        torch.testing.assert_close(cached(network, words, (j, POSITIONS - j)), whole, rtol=0, atol=1e-10)


@pytest.mark.parametrize("window", range(1, POSITIONS + 1))
def test_every_window_follows_the_same_rule(window):
    network, words = model(ODE).double(), _words(2, 3 * window + 4)
    expected = recompute(network, words, window=window)
    for lengths in ([words.shape[1]], [1] * words.shape[1]):
        decoder = Decoder(network, window=window)
        logits = torch.cat([decoder.feed(piece) for piece in words.split(lengths, dim=1)], dim=1)
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-10)


def test_trained_positions_decode_as_fixed_ones_do():
    network = model(ODE, sizes=SIZES.model_copy(update={"positions": "trained"})).double()
    words = _words(2, 2 * POSITIONS)
    torch.testing.assert_close(cached(network, words, [1] * 18), recompute(network, words), rtol=0, atol=1e-10)


def test_windows_start_where_the_rule_says():
    """Written out: 5 positions keep 2 words, so a new window every 3; 4 keep 2, every 2; 1 keeps none."""
    assert [window_start(i, 5) for i in range(12)] == [0, 0, 0, 0, 0, 3, 3, 3, 6, 6, 6, 9]
    assert [window_start(i, 4) for i in range(9)] == [0, 0, 0, 0, 2, 2, 4, 4, 6]
    assert [window_start(i, 1) for i in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("window", [1, 2, 5, 8, 9])
def test_a_word_is_read_with_at_least_half_a_window_before_it_and_never_beyond_it(window):
    places = [index - window_start(index, window) for index in range(10 * window)]
    assert places[:window] == list(range(window))
    assert set(places[window:]) == set(range(window // 2, window))


def test_no_position_is_used_that_the_model_was_not_trained_on():
    """Beyond the window nothing raises, and positions used are exactly those of the table."""
    network, seen = model(DISCRETE), []
    solve = network.solve
    network.solve = lambda tokens, cache: seen.append((cache.length, tokens.shape[1])) or solve(tokens, cache)
    cached(network, _words(1, 3 * POSITIONS), [1] * (3 * POSITIONS))
    assert max(begin + new for begin, new in seen) == POSITIONS
    assert sum(new for _, new in seen) == 3 * POSITIONS + 4 * (POSITIONS // 2)  # windows restart at 9, 14, 19, 24


def test_an_earlier_word_beyond_reach_changes_nothing_and_one_within_does():
    network, words = model(ODE), _words(1, 14)
    last = recompute(network, words)[:, -1]
    for at, matters in ((4, False), (5, True)):  # word 13 is read in the window that starts at word 5
        changed = words.clone()
        changed[0, at] = (changed[0, at] + 1) % CLASSES
        assert window_start(13, POSITIONS) == 5
        assert torch.equal(cached(network, changed, [14])[:, -1], cached(network, words, [14])[:, -1]) is not matters
        assert torch.allclose(recompute(network, changed)[:, -1], last) is not matters


def test_the_last_logits_alone_are_the_last_of_all():
    network, words = model(ODE).double(), _words(2, 12)
    torch.testing.assert_close(Decoder(network).feed_last(words), Decoder(network).feed(words)[:, -1])


def test_decoders_of_one_model_do_not_meet():
    network, first, second = model(ODE), _words(2, 7), _words(3, 7, seed=2)
    one, two = Decoder(network), Decoder(network)
    logits = [(one.feed(first[:, i : i + 1]), two.feed(second[:, i : i + 1])) for i in range(7)]
    torch.testing.assert_close(torch.cat([pair[0] for pair in logits], 1), network(first), rtol=0, atol=1e-4)
    torch.testing.assert_close(torch.cat([pair[1] for pair in logits], 1), network(second), rtol=0, atol=1e-4)


@pytest.mark.parametrize("shape", [(2, 0), (1, 1), (3, 2)])
def test_words_that_do_not_follow_are_refused(shape):
    decoder = Decoder(model(ODE))
    decoder.feed(_words(2, 3))
    with pytest.raises(ValueError, match="expected \\(2, 1 or more\\)"):
        decoder.feed(torch.zeros(shape, dtype=torch.int64))


@pytest.mark.parametrize("window", [0, POSITIONS + 1])
def test_a_window_the_model_does_not_have_is_refused(window):
    with pytest.raises(ValueError, match=f"expected 1 to {POSITIONS}"):
        Decoder(model(ODE), window=window)


@pytest.mark.parametrize("solver", sorted(ADAPTIVE))
def test_adaptive_solvers_are_refused_with_the_reason(solver):
    row: ContinuousRun = ODE.model_copy(update={"solver": solver})
    with pytest.raises(DepthtimeError, match=f"core/ode: solver {solver} is adaptive.*later word.*such as rk4"):
        refuse_adaptive(row, "core/ode")


@KINDS
def test_fixed_solvers_and_stacks_are_not_refused(run):
    refuse_adaptive(run, "core/any")
