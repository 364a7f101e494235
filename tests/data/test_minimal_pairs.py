"""The file of minimal pairs: what is a pair, what is told of mistakes, and what the study's own file holds."""

import json
from pathlib import Path

import pytest

from depthtime.data.minimal_pairs import Pair, differs_little, pair_classes, read_pairs
from depthtime.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "sentences").glob("*_pairs.yaml"))
WORDS = ("<eos>", "<unk>", "the", "company", "companies", "says", "say")


def _problems(tmp_path, text):
    path = tmp_path / "pairs.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_pairs(str(path))
    return [line.removeprefix(f"{path}: ") for line in caught.value.problems]


@pytest.mark.parametrize(
    ("good", "bad", "is_pair"),
    [
        ("a b c", "a x c", True),
        ("a b c", "b a c", True),
        ("a b c", "a c", True),
        ("a c", "a b c", True),
        ("a b c", "c b a", False),
        ("a b c", "x y c", False),
        ("a b c", "a b c", False),
        ("a b c", "b a", False),
        ("a b c d", "a b", False),
    ],
)
def test_a_pair_differs_by_one_word_or_by_an_exchange_of_neighbours(good, bad, is_pair):
    assert differs_little(tuple(good.split()), tuple(bad.split())) is is_pair


def test_all_mistakes_of_a_file_are_told_together(tmp_path):
    text = """\
one: {what: x, pairs: [[the company says, the company say], [the company, the company], [a b]]}
all: {what: x, pairs: [[a b, a c], [a b, a c]]}
two: {pairs: [[a, b], [c, d]]}
three: {what: x, pairs: [[a, b]]}
"""
    told = _problems(tmp_path, text)
    assert told[0].startswith("one, pair 2 = ['the company', 'the company']: expected one word replaced, added")
    assert told[1] == "one, pair 3 = ['a b']: expected two sentences, [good, bad]"
    assert told[2].startswith("all: a phenomenon's name takes letters")
    assert told[3] == "all, pair 2 = ['a b', 'a c']: is there twice"
    assert told[4] == "two: expected a mapping with exactly `what` (text) and `pairs` (a list)"
    assert told[5:] == ["three.pairs: expected a list of at least 2 pairs"]


def test_an_empty_file_is_told(tmp_path):
    assert _problems(tmp_path, "") == ["expected a mapping from a phenomenon to `what` and `pairs`"]


def test_unknown_words_and_long_sentences_are_named_with_file_pair_and_word():
    pairs = {
        "near": [
            Pair(("the", "company", "says"), ("the", "company", "say")),
            Pair(("the", "compny", "says"), ("the", "compny", "say")),
        ]
    }
    with pytest.raises(ConfigError) as caught:
        pair_classes("p.yaml", pairs, WORDS, "tale", 3)
    (line,) = caught.value.problems
    start = "p.yaml: near, pair 2 ('the compny says'): 'compny' is not in the vocabulary of tale; did you mean company"
    assert line.startswith(start)
    with pytest.raises(ConfigError, match=r"near, pair 1 .*: more than the 2 words that fit the window of tale"):
        pair_classes("p.yaml", {"near": pairs["near"][:1]}, WORDS, "tale", 2)


def test_words_become_their_classes_good_first():
    pairs = {"near": [Pair(("the", "company", "says"), ("the", "company", "say"))]}
    assert pair_classes("p.yaml", pairs, WORDS, "tale", 3) == {"near": [((2, 3, 5), (2, 3, 6))]}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_files_of_the_study_are_sound(path):
    pairs = read_pairs(str(path))
    assert all(text == text.lower() for rows in pairs.values() for p in rows for text in (*p.good, *p.bad))


def test_the_study_asks_for_both_forms_alike():
    """Of agreement, the wrong form of one pair is the right one of another: frequent words alone decide nothing."""
    pairs = read_pairs(str(ROOT / "sentences" / "minimal_pairs.yaml"))
    assert len(pairs) >= 12
    assert all(20 <= len(rows) <= 30 for rows in pairs.values())
    for name in ("agreement_near", "agreement_past_a_noun", "agreement_past_a_clause", "determiner_and_noun"):
        kinds = [next((g, b) for g, b in zip(p.good, p.bad, strict=True) if g != b) for p in pairs[name]]
        assert sorted(g for g, _ in kinds) == sorted(b for _, b in kinds), name


def test_all_words_of_the_study_are_in_its_vocabulary():
    path = ROOT / "results" / "vocabulary" / "ptb_standard.json"
    if not path.exists():
        pytest.skip(f"{path.name} is not here: `dvc pull` brings it")
    words = tuple(json.loads(path.read_text(encoding="utf-8"))["words"])
    name = "sentences/minimal_pairs.yaml"
    assert pair_classes(name, read_pairs(str(ROOT / name)), words, "ptb_standard", 63)
