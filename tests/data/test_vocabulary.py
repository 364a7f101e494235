"""Which words get a class, under the rules of both protocols."""

import numpy as np
import pytest

import tiny_corpus
from depthtime.config import ContinuumProtocol
from depthtime.data import vocabulary
from depthtime.data.vocabulary import Types, Vocabulary, continuumlm_vocabulary, number_words, standard_vocabulary
from depthtime.errors import DataError


def counted(train, held_out=""):
    """Types of both texts, and their counts in the first."""
    types = Types()
    stream = number_words(train, types, eos=False)
    number_words(held_out, types, eos=False)
    return list(types), np.bincount(stream, minlength=len(types))


def continuum(size, rule="frequency", **texts):
    config = ContinuumProtocol(**{**tiny_corpus.CONTINUUMLM, "vocabulary_size": size, "vocabulary": rule})
    return continuumlm_vocabulary(*counted(**texts), config, "datasets.x")


def test_words_are_numbered_in_order_of_first_appearance():
    types = Types()
    assert number_words("b a\nb c\n", types, eos=False).tolist() == [0, 1, 0, 2]
    assert list(types) == ["b", "a", "c"]


def test_eos_opens_the_stream_and_ends_each_line():
    types = Types()
    assert number_words("a b\n\nc\n", types, eos=True).tolist() == [0, 1, 2, 0, 0, 3, 0]
    assert next(iter(types)) == "<eos>"


def test_the_size_of_a_block_does_not_matter(monkeypatch):
    text = tiny_corpus.many_lines(50)
    whole = number_words(text, Types(), eos=True)
    monkeypatch.setattr(vocabulary, "BLOCK_CHARACTERS", 7)
    assert number_words(text, Types(), eos=True).tolist() == whole.tolist()


def test_the_twelve_words_get_the_classes_of_the_hand_worked_case():
    words, classes = continuum(8, train=tiny_corpus.TWELVE_WORDS)
    assert words.words == ("UNK", "the", "cat", "on", "sat", "hat", "mat", "<dead>")
    stream = number_words(tiny_corpus.TWELVE_WORDS, Types(), eos=False)
    assert tuple(classes[stream]) == tiny_corpus.TWELVE_TOKENS


def test_frequency_sees_the_training_part_only():
    words, classes = continuum(4, train="a a b c c", held_out="d d d d")
    assert words.words == ("UNK", "a", "c", "<dead>")
    assert classes.tolist() == [1, 0, 2, 0]


def test_first_appearance_sees_the_whole_stream_and_not_frequency():
    words, _ = continuum(5, "first_appearance", train="z y y", held_out="x w")
    assert words.words == ("UNK", "y", "z", "x", "<dead>")


def test_words_that_look_like_ours_stay_ordinary_words():
    words, classes = continuum(5, train="UNK UNK <unk> <dead> <dead> <dead>")
    assert words.words == ("UNK", "<dead>", "UNK", "<unk>", "<dead>")
    assert (words.unknown, words.dead) == (0, 4)
    assert classes.tolist() == [2, 3, 1]


def test_a_vocabulary_larger_than_the_corpus_names_both_numbers():
    with pytest.raises(DataError, match=r"datasets.x.vocabulary_size = 9, but the training part .* only 6 .*at most 8"):
        continuum(9, train=tiny_corpus.TWELVE_WORDS)
    with pytest.raises(DataError, match=r"vocabulary_size = 9, but the corpus has only 6"):
        continuum(9, "first_appearance", train=tiny_corpus.TWELVE_WORDS)


def standard(size, train, held_out=""):
    return standard_vocabulary(*counted(train, held_out), size, "datasets.x")


def test_standard_needs_no_unknown_class_when_every_word_is_known():
    words, classes = standard(3, "a b <eos> a b <eos> a", "b")
    assert words == Vocabulary(("a", "<eos>", "b"), unknown=None, dead=None, eos=1)
    assert classes.tolist() == [0, 2, 1]


def test_standard_adds_unknown_when_words_do_not_fit_or_are_new():
    words, classes = standard(3, "a a a b b <eos>")
    assert words.words == ("a", "b", "<eos>")
    words, classes = standard(3, "a a a b b c <eos>")
    assert words.words == ("a", "<eos>", "<unk>")
    assert classes.tolist() == [0, 2, 2, 1]
    words, classes = standard(3, "a a <eos>", "z")
    assert words.words == ("a", "<eos>", "<unk>")
    assert classes.tolist() == [0, 1, 2]


def test_an_unk_word_of_the_text_serves_however_rare():
    words, classes = standard(3, "a a b b <eos> <unk>", "z")
    assert words.words == ("a", "<eos>", "<unk>")
    assert words.unknown == 2
    assert classes.tolist() == [0, 2, 1, 2, 2]


def test_a_standard_vocabulary_larger_than_the_corpus_is_refused():
    with pytest.raises(
        DataError, match=r"vocabulary_size = 5, but .* only 3 different words with <eos>; expected at most 3"
    ):
        standard(5, "a b <eos>")
    with pytest.raises(DataError, match="expected at most 4"):
        standard(5, "a b <eos>", "z")
