"""Our own sentences, checked word by word against a vocabulary: measurements show text without showing a corpus."""

from __future__ import annotations

from pathlib import Path

from depthtime.config import kind_of, read_yaml, suggest
from depthtime.data.vocabulary import Vocabulary
from depthtime.errors import ConfigError

FEWEST_WORDS = 5  # the last one is not ranked, and fewer than four others rank nothing


def read_sentences(path: Path | str) -> list[tuple[str, ...]]:
    """The words of each sentence of a YAML file: a list of texts, words separated by white space.

    Raises: ConfigError with every problem found: file, sentence, what is wrong with it.
    """
    lines = read_yaml(path)
    if not isinstance(lines, list) or not lines:
        raise ConfigError([f"{path}: holds {kind_of(lines)}, expected a list of sentences, each a line `- words`"])
    problems = []
    for number, line in enumerate(lines, start=1):
        if not isinstance(line, str):
            problems.append(f"{path}: sentence {number} = {line!r} ({kind_of(line)}), expected text")
        elif len(line.split()) < FEWEST_WORDS:
            problems.append(f"{path}: sentence {number} = {line!r}: expected at least {FEWEST_WORDS} words")
    if problems:
        raise ConfigError(problems)
    return [tuple(line.split()) for line in lines]


def encode_sentences(
    path: Path | str, sentences: list[tuple[str, ...]], vocabulary: Vocabulary, positions: int
) -> list[list[int]]:
    """Classes of each sentence's words; in the standard protocol <eos> comes first, as in training.

    positions: the longest sequence that the model reads.
    Raises: ConfigError with every word that has no class of its own, and every sentence that is too long.
    """
    known = {word: number for number, word in enumerate(vocabulary.words)}
    nameless = {vocabulary.words[number] for number in (vocabulary.unknown, vocabulary.dead) if number is not None}
    start = [] if vocabulary.eos is None else [vocabulary.eos]
    problems = []
    for number, words in enumerate(sentences, start=1):
        at = f"{path}: sentence {number} ({' '.join(words)})"
        for word in dict.fromkeys(words):
            if word not in known or word in nameless:
                problems.append(f"{at}: {word!r} is not in the vocabulary{suggest(word, known)}; take another word")
        if len(start) + len(words) > positions:
            problems.append(f"{at}: longer than the {positions - len(start)} words that the model reads; shorten it")
    if problems:
        raise ConfigError(problems)
    return [start + [known[word] for word in words] for words in sentences]
