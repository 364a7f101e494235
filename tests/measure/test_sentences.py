"""Our sentences are readable, known to the models word by word, and taken from no corpus."""

import os
from collections import Counter
from pathlib import Path

import pytest

from depthtime.config import load_params
from depthtime.data.docstrings import extract
from depthtime.data.vocabulary import EOS, Vocabulary
from depthtime.errors import ConfigError
from depthtime.measure.sentences import encode_sentences, read_sentences

ROOT = Path(__file__).parents[2]
STANDARD = Vocabulary(("the", "cat", EOS, "sat", "on", "<unk>", "mat"), unknown=5, dead=None, eos=2)
CHUNKS = Vocabulary(("UNK", "the", "cat", "sat", "on", "<dead>"), unknown=0, dead=5, eos=None)
CAT = [("the", "cat", "sat", "on", "the")]


def _file(tmp_path, text):
    path = tmp_path / "sentences.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_sentences_are_the_lines_of_the_file(tmp_path):
    path = _file(tmp_path, "# ours\n- the cat sat on the\n- N on the  cat sat\n")
    assert read_sentences(path) == [*CAT, ("N", "on", "the", "cat", "sat")]


def test_classes_follow_the_words_after_eos_where_there_is_one():
    assert encode_sentences("s.yaml", CAT, STANDARD, 6) == [[2, 0, 1, 3, 4, 0]]
    assert encode_sentences("s.yaml", CAT, CHUNKS, 5) == [[1, 2, 3, 4, 1]]


def test_unknown_words_are_told_all_together_with_their_sentences():
    sentences = [*CAT, ("the", "catt", "sat", "on", "<unk>"), ("a", "cat", "sat", "on", "mat")]
    with pytest.raises(ConfigError) as caught:
        encode_sentences("s.yaml", sentences, STANDARD, 10)
    assert [problem.partition(";")[0] for problem in caught.value.problems] == [
        "s.yaml: sentence 2 (the catt sat on <unk>): 'catt' is not in the vocabulary",
        "s.yaml: sentence 2 (the catt sat on <unk>): '<unk>' is not in the vocabulary",
        "s.yaml: sentence 3 (a cat sat on mat): 'a' is not in the vocabulary",
    ]
    assert "did you mean cat?" in caught.value.problems[0]


def test_a_sentence_longer_than_the_model_reads_is_refused():
    with pytest.raises(ConfigError, match="longer than the 4 words that the model reads"):
        encode_sentences("s.yaml", CAT, STANDARD, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: b\n", "holds mapping, expected a list of sentences"),
        ("[]\n", "expected a list of sentences"),
        ("- the cat sat on the\n- 3\n", r"sentence 2 = 3 \(whole number\), expected text"),
        ("- the cat\n", "sentence 1 = 'the cat': expected at least 5 words"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        read_sentences(_file(tmp_path, text))


@pytest.mark.parametrize("params", ["params.yaml", "demo/params.yaml"])
def test_the_named_files_are_there_and_hold_different_sentences(params):
    sentences = read_sentences(ROOT / load_params(ROOT / params).sensitivity.sentences)
    assert len(set(sentences)) == len(sentences) >= 8


@pytest.mark.ptb
@pytest.mark.skipif(not os.environ.get("PTB_DIR"), reason="PTB_DIR is not set: no licensed text to look for")
def test_sentences_are_not_from_the_penn_treebank_but_of_its_words():
    """No five words in a row of a sentence are in any part; every word is at least 20 times in the training part."""
    parts = [(Path(os.environ["PTB_DIR"]) / f"ptb.{part}.txt").read_text() for part in ("train", "valid", "test")]
    sentences = read_sentences(ROOT / "sentences/ptb.yaml")
    counts = Counter(parts[0].split())
    rare = {word for sentence in sentences for word in sentence if counts[word] < 20}
    assert rare == set()
    assert _shared(sentences, "\n".join(parts)) == set()


def test_sentences_of_the_demo_are_not_from_the_docstrings():
    assert _shared(read_sentences(ROOT / "sentences/docstrings.yaml"), extract()) == set()


def _shared(sentences, text):
    """Runs of five words that sentences and a line of the text have in common."""

    def runs(words):
        return zip(*(words[k:] for k in range(5)), strict=False)

    ours = {run for sentence in sentences for run in runs(sentence)}
    return {run for line in text.split("\n") for run in runs(line.split()) if run in ours}
