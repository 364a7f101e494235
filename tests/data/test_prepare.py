"""From text to windows: the card pins what is loaded, the cache can go, and no text gets out."""

import os
from pathlib import Path

import numpy as np
import pytest

import tiny_corpus
from depthtime import paths
from depthtime.config import load_params
from depthtime.data.batching import IGNORED
from depthtime.data.corpus import fetch
from depthtime.data.dataset import load_dataset
from depthtime.data.prepare import prepare
from depthtime.errors import DataError, RecordError
from depthtime.records import read_json

PROTOCOLS = [tiny_corpus.CONTINUUMLM, tiny_corpus.STANDARD, tiny_corpus.SHARED]


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepared(text, dataset, **changes):
    Path("tiny.txt").write_text(text)
    study = tiny_corpus.study(dataset, **changes)
    prepare(study, "tiny")
    return study


def targets(windows):
    out = windows.take(np.arange(len(windows)))[1]
    return out[out != IGNORED].tolist()


def test_the_twelve_words_in_chunks_of_four(workspace):
    text = tiny_corpus.TWELVE_WORDS * 2  # chunks 0 ... 3 train, 4 and 5 validate
    data = load_dataset(prepared(text, tiny_corpus.CONTINUUMLM), "tiny")
    assert data.words == ("UNK", "the", "cat", "on", "sat", "hat", "mat", "<dead>")
    assert (data.vocabulary_size, data.unknown, data.test) == (8, 0, None)
    assert targets(data.train) == [2, 4, 3, 6, 1, 2, 3, 1, 5, 2, 4, 3]
    assert targets(data.valid) == [6, 1, 2, 3, 1, 5]
    assert data.card["num_scored"] == {"train": 12, "valid": 6}
    assert data.card["tokens"] == {"all": 24}
    assert read_json(paths.split("tiny"))["chunks"] == {"train": [0, 1, 2, 3], "valid": [4, 5], "dropped": []}


def test_a_standard_part_scores_each_of_its_tokens_once(workspace):
    text = tiny_corpus.many_lines(30)
    data = load_dataset(prepared(text, tiny_corpus.STANDARD, vocabulary_size=20), "tiny")
    lines = text.splitlines()
    for windows, part in ((data.valid, lines[24:27]), (data.test, lines[27:])):
        expected = " <eos> ".join([*part, ""]).split()
        known = [word if word in data.words else "<unk>" for word in expected]
        assert [data.words[i] for i in targets(windows)] == known
    assert data.card["num_scored"]["valid"] == data.card["tokens"]["valid"]
    assert read_json(paths.split("tiny"))["lines"] == {"train": [0, 24], "valid": [24, 27], "test": [27, 30]}
    assert data.train.tokens[0] == data.words.index("<eos>")


def test_the_unknown_share_is_that_of_the_arrays(workspace):
    data = load_dataset(prepared("a a a b\n" * 3 + "c c a a\n" * 2, tiny_corpus.CONTINUUMLM, vocabulary_size=3), "tiny")
    assert data.words == ("UNK", "a", "<dead>")
    assert data.card["unknown_share"] == {"all": 7 / 20, "train": 3 / 12, "valid": 4 / 8}


@pytest.mark.parametrize("dataset", PROTOCOLS)
def test_arrays_are_memory_mapped_and_small(workspace, dataset):
    data = load_dataset(prepared(tiny_corpus.many_lines(60), dataset), "tiny")
    assert data.train.tokens.dtype == np.uint16
    assert isinstance(data.train.tokens.base, np.memmap)
    assert not data.train.tokens.flags.writeable


@pytest.mark.parametrize("dataset", PROTOCOLS)
@pytest.mark.parametrize("damage", ["delete", "truncate", "alter"])
def test_a_missing_or_damaged_array_is_rebuilt_to_the_same_hash(workspace, dataset, damage):
    study = prepared(tiny_corpus.many_lines(60), dataset)
    before = {path.name: path.read_bytes() for path in paths.ARRAYS.iterdir()}
    for path in paths.ARRAYS.iterdir():
        data = path.read_bytes()
        path.write_bytes({"truncate": data[:-9], "alter": data[:-1] + b"\7", "delete": b""}[damage])
        if damage == "delete":
            path.unlink()
    load_dataset(study, "tiny")
    assert {path.name: path.read_bytes() for path in paths.ARRAYS.iterdir()} == before


def test_loading_writes_no_output_and_does_without_the_vocabulary_file(workspace):
    study = prepared(tiny_corpus.many_lines(60), tiny_corpus.CONTINUUMLM)
    words = load_dataset(study, "tiny").words
    paths.vocabulary("tiny").unlink()
    paths.split("tiny").unlink()
    assert load_dataset(study, "tiny").words == words
    assert not paths.vocabulary("tiny").exists()


def test_a_rebuild_of_another_text_is_refused(workspace):
    study = prepared(tiny_corpus.many_lines(60), tiny_corpus.CONTINUUMLM)
    for path in paths.ARRAYS.iterdir():
        path.unlink()
    Path("tiny.txt").write_text(tiny_corpus.many_lines(60, seed=1))
    with pytest.raises(DataError, match="changed since"):
        load_dataset(study, "tiny")
    fetch(study, "tiny")
    with pytest.raises(DataError, match=r"data/tiny.json: .*differs in .*arrays.*; run `depthtime prepare tiny` again"):
        load_dataset(study, "tiny")


def test_a_card_of_another_configuration_or_no_card_is_refused(workspace):
    prepared(tiny_corpus.many_lines(60), tiny_corpus.CONTINUUMLM)
    with pytest.raises(DataError, match=r"another configuration of datasets.tiny"):
        load_dataset(tiny_corpus.study(tiny_corpus.CONTINUUMLM, window=5), "tiny")
    with pytest.raises(DataError, match=r"no dataset is called 'tyni' \(there are: tiny\)"):
        load_dataset(tiny_corpus.study(tiny_corpus.CONTINUUMLM), "tyni")
    paths.data_card("tiny").unlink()
    with pytest.raises(RecordError, match="no such file"):
        load_dataset(tiny_corpus.study(tiny_corpus.CONTINUUMLM), "tiny")


def test_a_text_with_crlf_and_bom_gives_the_same_card(workspace):
    text = tiny_corpus.many_lines(60)
    prepared(text, tiny_corpus.STANDARD)
    before = paths.data_card("tiny").read_bytes()
    paths.source_card("tiny").unlink()
    Path("tiny.txt").write_bytes(b"\xef\xbb\xbf" + text.encode().replace(b"\n", b"\r\n"))
    prepare(tiny_corpus.study(tiny_corpus.STANDARD), "tiny")
    assert paths.data_card("tiny").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "dataset", "changes", "message"),
    [
        (
            "a b c\n",
            tiny_corpus.CONTINUUMLM,
            {},
            r"datasets.tiny: the corpus has 3 tokens, which is 0 chunks of window = 4",
        ),
        ("a b c\n" * 9, tiny_corpus.STANDARD, {}, "has 9 lines"),
        (
            "a b c\n" * 10,
            tiny_corpus.STANDARD,
            {"window": 9, "vocabulary_size": 4},
            "the valid text has 4 tokens; .* at least 9",
        ),
        ("a b c\n" * 10, tiny_corpus.STANDARD, {}, r"datasets.tiny.vocabulary_size = 8, .* only 4 different words"),
        ("a b c\n" * 10, tiny_corpus.CONTINUUMLM, {}, r"datasets.tiny.vocabulary_size = 8, .* only 3 different words"),
        ("a <eos> c\n" * 10, tiny_corpus.STANDARD, {}, "the train text holds the word <eos>"),
        ("a b c\n" * 10, tiny_corpus.STANDARD, {"split": "official"}, "split = official, but corpus tiny has no test"),
        (" \n", tiny_corpus.STANDARD, {}, "tiny.txt: is empty"),
    ],
)
def test_unusable_input_gives_one_clear_error_and_no_output(workspace, text, dataset, changes, message):
    with pytest.raises(DataError, match=message):
        prepared(text, dataset, **changes)
    assert not paths.data_card("tiny").exists()
    assert not paths.vocabulary("tiny").exists()


@pytest.mark.parametrize("rule", ["frequency", "first_appearance"])
def test_no_output_holds_running_text(workspace, rule):
    text = tiny_corpus.many_lines(200)
    prepared(text, tiny_corpus.CONTINUUMLM, vocabulary=rule, vocabulary_size=20)
    assert_no_running_text(text)


def assert_no_running_text(text, length=6):
    """No `length` consecutive words of the text stand in that order in any file under results/.

    Alphabetical runs do not count: any sorted word list has them (the Penn Treebank opens with a list of names).
    """
    words = text.split()
    runs = {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}
    for path in paths.RESULTS.rglob("*"):
        if path.is_file():
            written = path.read_text().replace('"', " ").replace(",", " ").split()
            seen = {tuple(written[i : i + length]) for i in range(len(written) - length + 1)}
            assert not {run for run in runs & seen if list(run) != sorted(run)}, path


@pytest.fixture(scope="module")
def ptb(tmp_path_factory):
    """The published datasets, prepared in a scratch workspace."""
    folder = os.environ.get("PTB_DIR")
    if not folder or not Path(folder).is_dir():
        pytest.skip("PTB_DIR names no folder with the Penn Treebank files")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTB_DIR", str(Path(folder).resolve()))
        patch.chdir(tmp_path_factory.mktemp("ptb"))
        study = load_params(tiny_corpus.ROOT / "params.yaml")
        fetch(study, "ptb")
        for name in study.datasets:
            if study.datasets[name].corpus == "ptb":
                prepare(study, name)
        yield study


@pytest.mark.ptb
def test_the_corpus_is_the_corpus(ptb):
    card = read_json(paths.source_card("ptb"))
    assert {part: (row["words"], row["lines"]) for part, row in card["parts"].items()} == {
        "train": (887_521, 42_068),
        "valid": (70_390, 3_370),
        "test": (78_669, 3_761),
    }
    data = load_dataset(ptb, "ptb_standard")
    assert data.card["tokens"] == {"train": 929_589, "valid": 73_760, "test": 82_430}
    assert (data.valid.num_scored, data.test.num_scored) == (73_760, 82_430)
    assert (data.vocabulary_size, data.words[data.unknown], data.card["vocabulary"]["dead"]) == (10_000, "<unk>", None)


@pytest.mark.ptb
def test_the_sources_protocol_has_the_sources_sizes(ptb):
    for name, share in (("ptb_continuumlm", 0.0677), ("ptb_first_appearance", 0.1094)):
        data = load_dataset(ptb, name)
        assert data.card["tokens"] == {"all": 887_521}
        assert data.card["windows"] == {"train": 12_480, "valid": 1_384}
        assert data.card["num_scored"] == {"train": 786_240, "valid": 87_192}
        assert (data.vocabulary_size, len(data.words), max(data.train.tokens)) == (4_000, 4_000, 3_998)
        assert data.card["unknown_share"]["all"] == pytest.approx(share, abs=5e-5)


@pytest.mark.ptb
def test_no_output_holds_running_ptb_text(ptb):
    for part in ("train", "valid", "test"):
        assert_no_running_text((Path(os.environ["PTB_DIR"]) / f"ptb.{part}.txt").read_text(), length=4)
