"""One vocabulary for several corpora: each counts alike, and all datasets that share it read the same words."""

import math
import os
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import tiny_corpus
from depthtime import paths
from depthtime.config import Corpus, SharedVocabularyProtocol, load_params
from depthtime.data.dataset import load_dataset
from depthtime.data.prepare import prepare
from depthtime.data.vocabulary import equal_shares
from depthtime.errors import ConfigError, DataError
from depthtime.records import read_json

HEAD = 8  # of ten lines, the part that trains when a text is cut contiguously


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def two_corpora(texts, size=6, order=("first", "second"), **changes):
    """A study with a dataset over each of two texts, files first.txt and second.txt, which share their words."""
    base = load_params(tiny_corpus.ROOT / "params.yaml")
    for name, text in texts.items():
        Path(f"{name}.txt").write_bytes(text.encode())
    common = {**tiny_corpus.SHARED, "window": 3, "vocabulary_size": size, "vocabulary_from": order, **changes}
    return base.model_copy(
        update={
            "corpora": {name: Corpus(source=f"file:{name}.txt", sha256=None) for name in texts},
            "datasets": {name: SharedVocabularyProtocol(**{**common, "corpus": name}) for name in texts},
        }
    )


def vocabularies(study):
    for name in study.datasets:
        prepare(study, name)
    return [paths.vocabulary(name).read_bytes() for name in study.datasets]


# in training: first holds a 16, b 8, and each line an <eos>; second, four times as long, holds c 96, d 32 and <eos> 32
FIRST = "a a b\n" * 10
SECOND = "c c c d\n" * 40


def test_relative_frequencies_count_and_not_lengths(workspace):
    study = two_corpora({"first": FIRST, "second": SECOND}, size=4)
    for name in study.datasets:
        prepare(study, name)
    # shares: a 16/32, b 8/32, <eos> 8/32 in first; c 96/160, d 32/160, <eos> 32/160 in second
    # so c 0.6, a 0.5, <eos> 0.45, b 0.25, d 0.2; four classes, one of them <unk>
    assert read_json(paths.vocabulary("first"))["words"] == ["c", "a", "<eos>", "<unk>"]


def test_datasets_that_share_words_have_equal_vocabularies_in_any_order(workspace):
    texts = {"first": tiny_corpus.many_lines(60), "second": tiny_corpus.many_lines(200, seed=1).replace("ba", "zo")}
    first, second = vocabularies(two_corpora(texts, size=20))
    assert first == second
    assert vocabularies(two_corpora(texts, size=20, order=("second", "first"))) == [first, first]


def test_ties_between_corpora_go_by_word(workspace):
    study = two_corpora({"first": "z z b\n" * 10, "second": "y y y a a b b\n" * 10}, size=5)
    # z and <eos> 2/4 and 1/4 in first, y 3/8, a, b 2/8, <eos> 1/8 in second: z 4/8, b 4/8, y 3/8, <eos> 3/8, a 2/8
    assert vocabularies(study)[0] == vocabularies(study)[1]
    assert read_json(paths.vocabulary("first"))["words"] == ["b", "z", "<eos>", "y", "a"]


def equal_shares_reference(texts):
    """Mean relative frequency of each word over the training parts, in exact fractions, <eos> after each line."""
    shares = Counter()
    for text in texts:
        lines = text.splitlines()[: len(text.splitlines()) - 2 * (len(text.splitlines()) // 10)]
        counts = Counter(word for line in lines for word in [*line.split(), "<eos>"])
        for word, count in counts.items():
            shares[word] += Fraction(count, counts.total() * len(texts))
    return shares


def test_the_words_are_those_of_a_slow_count_in_fractions(workspace):
    texts = {"first": tiny_corpus.many_lines(60), "second": tiny_corpus.many_lines(200, seed=1).replace("ba", "zo")}
    prepare(two_corpora(texts, size=20), "second")
    shares = equal_shares_reference(texts.values())
    ranked = sorted(shares, key=lambda word: (-shares[word], word))
    assert read_json(paths.vocabulary("second"))["words"] == [*ranked[:19], "<unk>"]
    assert "<eos>" in ranked[:19]


def test_shares_of_corpora_too_long_for_64_bits_are_exact():
    lengths = [3_000_000_019, 5_000_000_029, 7_000_000_001]
    counts = [np.array([length - 1, 1]) for length in lengths]
    shares = equal_shares(counts)
    assert [Fraction(share, math.prod(lengths)) for share in shares] == [
        sum(Fraction(length - 1, length) for length in lengths),
        sum(Fraction(1, length) for length in lengths),
    ]


def test_the_published_datasets_share_their_words():
    cards = [read_json(tiny_corpus.ROOT / paths.data_card(name)) for name in ("ptb_shared", "docstrings_shared")]
    assert cards[0]["vocabulary"] == cards[1]["vocabulary"]


def test_one_corpus_alone_gives_the_words_of_the_standard_protocol(workspace):
    text = tiny_corpus.many_lines(60)
    study = two_corpora({"tiny": text}, size=20, order=("tiny",))
    shared = vocabularies(study)
    prepare(tiny_corpus.study(tiny_corpus.STANDARD, vocabulary_size=20), "tiny")
    assert [paths.vocabulary("tiny").read_bytes()] == shared


def test_words_of_the_other_corpus_have_classes_but_do_not_occur(workspace):
    study = two_corpora({"first": FIRST, "second": SECOND}, size=5)
    prepare(study, "first")
    data = load_dataset(study, "first")
    assert set(data.words) == {"a", "b", "c", "d", "<eos>"}
    read = {data.words[i] for i in data.train.tokens.tolist()}
    assert read == {"a", "b", "<eos>"}


def test_held_out_lines_of_either_corpus_add_no_words(workspace):
    rare = "a a b\n" * HEAD + "held out\n" * 2
    study = two_corpora({"first": rare, "second": SECOND}, size=6)
    for name in study.datasets:
        prepare(study, name)
        assert not {"held", "out"} & set(load_dataset(study, name).words)
    assert load_dataset(study, "first").card["unknown_share"]["test"] > 0


def test_the_card_pins_the_other_text_too(workspace):
    study = two_corpora({"first": FIRST, "second": SECOND}, size=4)
    prepare(study, "first")
    assert set(read_json(paths.data_card("first"))["text_sha256"]) == {"train", "second.train"}
    for path in paths.ARRAYS.iterdir():
        path.unlink()
    Path("second.txt").write_text(SECOND + "e\n")
    with pytest.raises(DataError, match=r"corpora.second: the train text has changed"):
        load_dataset(study, "first")


def test_a_missing_text_of_the_other_corpus_is_named(workspace):
    study = two_corpora({"first": FIRST, "second": SECOND}, size=4)
    Path("second.txt").unlink()
    with pytest.raises(DataError, match=r"second.txt"):
        prepare(study, "first")
    assert not paths.data_card("first").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("c <eos> d\n" * 40, r"datasets.first.vocabulary_from: the train text of second holds the word <eos>"),
        ("c d\n" * 9, r"datasets.first.vocabulary_from, second: the corpus has 9 lines; .* at least 10"),
    ],
)
def test_an_unusable_text_of_the_other_corpus_is_refused(workspace, text, said):
    with pytest.raises(DataError, match=said):
        prepare(two_corpora({"first": FIRST, "second": text}, size=4), "first")


def test_crlf_copies_are_the_same_corpora(workspace):
    texts = {"first": FIRST, "second": SECOND}
    before = vocabularies(two_corpora(texts, size=4))
    crlf = two_corpora({name: text.replace("\n", "\r\n") for name, text in texts.items()}, size=4)
    assert vocabularies(crlf) == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "[ptb, docstring]",
            r"ptb_shared.vocabulary_from: 'docstring' is no corpus; did you mean docstrings\?",
        ),
        ("[docstrings]", r"datasets.ptb_shared: vocabulary_from = \['docstrings'\] leaves out the corpus itself, ptb"),
        ("[[ptb], docstrings]", r"datasets.ptb_shared.vocabulary_from.0 = .*, expected text"),
        ("[ptb, ptb]", r"datasets.ptb_shared: vocabulary_from = \['ptb', 'ptb'\] names a corpus twice"),
    ],
)
def test_mistakes_name_the_dataset_and_the_corpus(tmp_path, change, said):
    text = (tiny_corpus.ROOT / "params.yaml").read_text(encoding="utf-8")
    path = tmp_path / "params.yaml"
    path.write_text(text.replace("vocabulary_from: [ptb, docstrings]", f"vocabulary_from: {change}", 1))
    with pytest.raises(ConfigError, match=said):
        load_params(path)


@pytest.mark.ptb
@pytest.mark.skipif(not os.environ.get("PTB_DIR"), reason="PTB_DIR is not set")
def test_a_corpus_with_official_parts_is_not_cut_again(workspace):
    study = load_params(tiny_corpus.ROOT / "params.yaml")
    row = study.datasets["ptb_shared"].model_copy(update={"split": "contiguous", "vocabulary_from": ("ptb",)})
    study = study.model_copy(update={"datasets": {"ptb_shared": row}})
    with pytest.raises(DataError, match=r"ptb_shared.split = contiguous, but corpus ptb has official parts"):
        prepare(study, "ptb_shared")
