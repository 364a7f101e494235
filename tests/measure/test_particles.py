"""Tokens move as attention says: together with the identity, apart with its negative, and never by what comes later."""

import math

import numpy as np
import pytest
from scipy.linalg import expm

from depthtime.measure.particles import (
    System,
    attention_drift,
    choices,
    draw,
    rescaled_drift,
    simulate,
    standardise,
)


def end(system, start, step_size=0.1, num_steps=20):
    *_, (_, tokens) = simulate(system, start, step_size=step_size, num_steps=num_steps)
    return standardise(tokens) if system.standardises else tokens


def spread(tokens):
    """Mean distance of two tokens, by seed."""
    return np.linalg.norm(tokens[:, :, None] - tokens[:, None], axis=-1).mean(axis=(1, 2))


@pytest.fixture
def drawn():
    return draw(seeds=5, tokens=10, width=4)


@pytest.fixture
def systems(drawn):
    return choices(*drawn[1:])


def constant(scores, values, **options):
    return System(attention_drift(lambda t: scores, lambda t: values, **options))


def test_one_step_is_attention_worked_out_token_by_token(drawn):
    start, first, second = drawn
    times, states = zip(*simulate(choices(first, second)["g_late"], start, step_size=0.5, num_steps=2), strict=True)
    assert times == (0, 0.5, 1)
    g = 0.05**4  # at t = 0.5
    z = standardise(states[1])[2]
    expected = np.empty_like(z)
    for i, token in enumerate(z):
        scores = [g * g * (token @ first[2]) @ (other @ first[2]) for other in z]
        weights = np.exp(scores) / np.exp(scores).sum()
        expected[i] = token + 0.5 * g * sum(w * other @ second[2] for w, other in zip(weights, z, strict=True))
    np.testing.assert_allclose(states[2][2], expected, rtol=1e-12)


def test_standardised_tokens_have_mean_zero_and_variance_one(drawn):
    tokens = standardise(drawn[0])
    np.testing.assert_allclose(tokens.mean(axis=-1), 0, atol=1e-14)
    np.testing.assert_allclose((tokens**2).mean(axis=-1), 1, rtol=1e-12)


def test_the_identity_draws_tokens_together_and_its_negative_apart(systems, drawn):
    before = spread(standardise(drawn[0]))
    assert (spread(end(systems["identity_soft"], drawn[0], num_steps=60)) < 0.9 * before).all()
    assert (spread(end(systems["repelling"], drawn[0], num_steps=60)) > before).all()


def test_a_change_of_sign_undoes_what_moved_the_tokens(systems, drawn):
    before = standardise(drawn[0])
    moved = {name: np.abs(end(systems[name], drawn[0]) - before).mean() for name in ("g_cos", "g_abs_cos")}
    assert moved["g_cos"] < 0.5 * moved["g_abs_cos"]


def test_equal_tokens_stay_equal(systems, drawn):
    start = drawn[0].copy()
    start[:, 7] = start[:, 2]
    for name, system in systems.items():
        tokens = end(system, start, num_steps=50)
        np.testing.assert_allclose(tokens[:, 7], tokens[:, 2], rtol=1e-9, atol=1e-9, err_msg=name)
        assert (tokens[:, 7] != tokens[:, 3]).any()


def test_the_order_of_tokens_does_not_matter(systems, drawn):
    order = np.random.default_rng(0).permutation(10)
    for name, system in systems.items():
        found, expected = end(system, drawn[0][:, order]), end(system, drawn[0])[:, order]
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9, err_msg=name)


def test_seeds_do_not_touch_one_another(drawn):
    start, first, second = drawn
    alone = choices(first[3:4], second[3:4])
    for name, system in choices(first, second).items():
        found, expected = end(system, start)[3:4], end(alone[name], start[3:4])
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9, err_msg=name)


def test_without_standardising_a_rotation_turns_the_whole_path(drawn):
    start = drawn[0]
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    unit = np.eye(4)
    system = System(attention_drift(lambda t: 0.1 * unit, lambda t: -unit), standardises=False)
    np.testing.assert_allclose(end(system, start @ rotation), end(system, start) @ rotation, atol=1e-10)


def test_with_standardising_only_rotations_that_keep_the_mean_direction_do(systems, drawn):
    start, ones = drawn[0], np.full((4, 1), 0.5)
    free = np.random.default_rng(2).normal(size=(4, 4))
    basis = np.linalg.qr(np.hstack([ones, free[:, 1:]]))[0]  # first column +-ones
    turned = np.linalg.qr(free[:3, :3])[0]
    rotation = basis @ np.block([[np.eye(1), np.zeros((1, 3))], [np.zeros((3, 1)), turned]]) @ basis.T
    system = systems["identity_soft"]
    np.testing.assert_allclose(end(system, start @ rotation), end(system, start) @ rotation, atol=1e-10)
    other = np.linalg.qr(free)[0]
    assert np.abs(end(system, start @ other) - end(system, start) @ other).max() > 0.1


@pytest.mark.parametrize("name", ["identity_soft", "g_cos", "rescaled"])
def test_smaller_steps_converge_with_order_one(systems, drawn, name):
    fine = end(systems[name], drawn[0], step_size=0.5 / 1024, num_steps=1024)
    errors = [np.abs(end(systems[name], drawn[0], 0.5 / n, n) - fine).mean() for n in (16, 32, 64, 128)]
    slopes = np.diff(np.log2(errors))
    assert ((slopes < -0.85) & (slopes > -1.35)).all(), slopes


def test_a_causal_token_ignores_later_ones_and_a_free_one_does_not(drawn):
    start, first, second = drawn
    other = start.copy()
    other[:, 6:] = other[:, 6:] + 1.5 * np.random.default_rng(3).normal(size=other[:, 6:].shape)
    for is_causal in (True, False):
        system = constant(0.1 * first, second, is_causal=is_causal)
        moved = np.abs(end(system, other) - end(system, start))[:, :6].max()
        assert (moved < 1e-9) if is_causal else (moved > 1e-3)


def test_a_causal_first_token_moves_by_its_own_value(drawn):
    start, first, second = drawn
    drift = attention_drift(lambda t: first, lambda t: second, is_causal=True)
    np.testing.assert_allclose(drift(0.0, start)[:, 0], np.einsum("sd,sde->se", start[:, 0], second), rtol=1e-12)


def test_heads_are_added_up(drawn):
    start, first, second = drawn
    both = attention_drift(lambda t: np.stack([first, second]), lambda t: np.stack([second, first]))
    one = attention_drift(lambda t: first, lambda t: second)
    two = attention_drift(lambda t: second, lambda t: first)
    np.testing.assert_allclose(both(0.0, start), one(0.0, start) + two(0.0, start), rtol=1e-12)


def test_rescaled_tokens_are_the_plain_ones_in_other_coordinates(drawn):
    start, _, second = drawn
    scores, values, n = 0.1 * np.eye(4), 0.5 * second, 4000
    plain = System(attention_drift(lambda t: scores, lambda t: values), standardises=False)
    rescaled = System(rescaled_drift(scores, values), standardises=False)
    found = end(rescaled, start, 0.5 / n, n) @ expm(0.5 * values)
    np.testing.assert_allclose(found, end(plain, start, 0.5 / n, n), atol=2e-3)
    assert np.abs(found - start).max() > 0.5


def test_draws_belong_to_their_seed_and_width():
    start, first, second = draw(seeds=3, tokens=6, width=4)
    longer = draw(seeds=5, tokens=6, width=4)
    assert all((few == many[:3]).all() for few, many in zip((start, first, second), longer, strict=True))
    assert start.min() >= -2
    assert start.max() <= 2
    assert not (first[0] == second[0]).any()
    assert not (first[0] == first[1]).any()
    assert math.isclose(draw(50, 40, 3)[0].std(), 4 / math.sqrt(12), rel_tol=0.05)
