"""One vocabulary for several corpora: each counts alike, and all datasets that share it read the same words."""

import os
from pathlib import Path

import pytest

import tiny_corpus
from depthtime import paths
from depthtime.config import Corpus, SharedVocabularyProtocol, load_params
from depthtime.data.dataset import load_dataset
from depthtime.data.prepare import prepare
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
