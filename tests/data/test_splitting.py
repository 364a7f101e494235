"""The source's hash split, other splits, and windows written out for 11 tokens."""

import numpy as np
import pytest

import tiny_corpus
from depthtime.config import ContinuumProtocol
from depthtime.data.batching import IGNORED, Windows
from depthtime.data.splitting import (
    hash64,
    hash_shuffle,
    scoring_windows,
    split_chunks,
    split_lines,
    training_starts,
)
from depthtime.errors import DataError

PTB = ContinuumProtocol(
    corpus="ptb",
    protocol="continuumlm",
    vocabulary="frequency",
    vocabulary_size=4000,
    window=64,
    split="hash",
    train_fraction=0.9,
    split_seed=0,
    keep_multiple=8,
)
ELEVEN = np.arange(12)  # <eos> and tokens 1 ... 11, each its own number


def test_the_hash_is_julias():
    assert [hex(value) for value in hash64(np.array([1, 2], dtype=np.uint64))] == [
        "0x5bca7c69b794f8ce",
        "0xb795033f6f2a0674",
    ]


def test_the_hash_shuffle_swaps_as_the_source_says():
    n = 7
    expected = [None, *range(n)]  # 1-based, as in Julia
    for i in range(n, 1, -1):
        other = int(hash64(np.array([i], dtype=np.uint64))[0]) % i + 1
        expected[i], expected[other] = expected[other], expected[i]
    assert hash_shuffle(np.arange(n)).tolist() == expected[1:]
    assert hash_shuffle(np.arange(1)).tolist() == [0]
    assert hash_shuffle(np.arange(0)).tolist() == []


def test_ptb_has_the_sources_chunks():
    kept = split_chunks(887_521, PTB, "datasets.ptb")
    assert (len(kept.train), len(kept.valid), len(kept.dropped)) == (12_480, 1_384, 3)
    everything = split_chunks(887_521, PTB.model_copy(update={"keep_multiple": 1}), "datasets.ptb")
    assert (len(everything.train), len(everything.valid)) == (12_480, 1_387)
    assert set(kept.dropped) == set(everything.valid) - set(kept.valid)


def test_the_hash_split_shuffles_each_part_once_more():
    order = hash_shuffle(np.arange(13_867))
    kept = split_chunks(887_521, PTB, "datasets.ptb")
    assert kept.train.tolist() == hash_shuffle(order[:12_480]).tolist()
    assert kept.valid.tolist() == hash_shuffle(order[12_480:])[:1_384].tolist()


@pytest.mark.parametrize("split", ["hash", "shuffle", "contiguous"])
def test_every_chunk_is_in_exactly_one_part(split):
    config = PTB.model_copy(update={"split": split, "window": 5, "keep_multiple": 3})
    parts = split_chunks(517, config, "datasets.x")
    assert sorted(np.concatenate([parts.train, parts.valid, parts.dropped]).tolist()) == list(range(103))
    assert len(parts.train) == 90
    assert len(parts.valid) == 9


def test_the_seeded_shuffle_depends_on_its_seed_only():
    one, other = (PTB.model_copy(update={"split": "shuffle", "split_seed": seed}) for seed in (1, 2))
    first = split_chunks(10_000, one, "x").train.tolist()
    assert split_chunks(10_000, one, "x").train.tolist() == first
    assert split_chunks(10_000, other, "x").train.tolist() != first


def test_the_contiguous_split_holds_out_the_end():
    config = PTB.model_copy(update={"split": "contiguous", "keep_multiple": 1})
    parts = split_chunks(64 * 20, config, "x")
    assert parts.train.tolist() == list(range(18))
    assert parts.valid.tolist() == [18, 19]


def test_a_short_corpus_says_how_many_tokens_it_needs():
    with pytest.raises(DataError, match=r"datasets.x: the corpus has 100 tokens.*so 4,544 tokens"):
        split_chunks(100, PTB, "datasets.x")
    assert len(split_chunks(4_544, PTB, "x").valid) == 8
    with pytest.raises(DataError, match="needs at least"):
        split_chunks(4_543, PTB, "x")


def test_the_last_tenth_of_the_lines_is_test():
    assert split_lines(25, "x") == {"train": (0, 21), "valid": (21, 23), "test": (23, 25)}
    with pytest.raises(DataError, match=r"has 9 lines.* at least 10"):
        split_lines(9, "datasets.x")


def scored(positions, stride):
    """For each window: its inputs and the targets it scores."""
    starts, first = scoring_windows(len(ELEVEN), positions, stride, "x")
    inputs, targets = Windows(ELEVEN, starts, first, positions).take(np.arange(len(starts)))
    return [(i.tolist(), t[t != IGNORED].tolist()) for i, t in zip(inputs, targets, strict=True)]


def test_eleven_tokens_in_windows_of_four():
    assert scored(4, 4) == [([0, 1, 2, 3], [1, 2, 3, 4]), ([4, 5, 6, 7], [5, 6, 7, 8]), ([7, 8, 9, 10], [9, 10, 11])]


def test_eleven_tokens_in_windows_of_four_with_stride_two():
    assert scored(4, 2) == [
        ([0, 1, 2, 3], [1, 2, 3, 4]),
        ([2, 3, 4, 5], [5, 6]),
        ([4, 5, 6, 7], [7, 8]),
        ([6, 7, 8, 9], [9, 10]),
        ([7, 8, 9, 10], [11]),
    ]


@pytest.mark.parametrize("positions", range(1, 12))
def test_every_token_is_scored_exactly_once_in_any_window(positions):
    for stride in range(1, positions + 1):
        assert [t for _, targets in scored(positions, stride) for t in targets] == list(range(1, 12))


def test_training_windows_do_not_overlap_and_are_full():
    assert training_starts(12, 4, "x").tolist() == [0, 4]
    assert training_starts(13, 4, "x").tolist() == [0, 4, 8]


def test_a_text_shorter_than_a_window_says_so():
    for place in (
        lambda: training_starts(12, 12, "x: the train text"),
        lambda: scoring_windows(12, 12, 1, "x: the train text"),
    ):
        with pytest.raises(DataError, match=r"x: the train text has 11 tokens; one window = 12 needs at least 12"):
            place()


def test_the_tiny_protocol_is_valid():
    assert ContinuumProtocol(**tiny_corpus.CONTINUUMLM).positions == 3
