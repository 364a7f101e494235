"""From a prompt to words, one at a time: the dataset's own words in, the same words out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from depthtime.config import suggest
from depthtime.data.vocabulary import EOS, UNKNOWN, Vocabulary
from depthtime.errors import DataError
from depthtime.generate.decoder import Decoder
from depthtime.generate.sampling import sample


@dataclass(frozen=True)
class Prompt:
    """`classes` start a sequence; `words` are how the model reads the prompt; `unknown` were not in the vocabulary."""

    classes: tuple[int, ...]
    words: tuple[str, ...]
    unknown: tuple[str, ...]


def encode_prompt(text: str, vocabulary: Vocabulary) -> Prompt:
    """Split at white space, keep the case, and read words without a class as the unknown word.

    In the standard protocol <eos> opens a text and a line break inside it is <eos>, so an empty prompt is a start. The
    continuumlm protocol has no such word: its chunks begin anywhere. Raises: DataError for an empty prompt there, and
    for an unknown word where no class stands for those.
    """
    has_eos = vocabulary.eos is not None
    words = (text.replace("\n", f" {EOS} ") if has_eos else text).split()
    if not words and not has_eos:
        likely = next(word for index, word in enumerate(vocabulary.words) if index != vocabulary.unknown)
        raise DataError(
            "the prompt is empty, and texts of the continuumlm protocol have no first word to start from; "
            f'give one word or more, such as --prompt "{likely}"'
        )
    known = _numbers(vocabulary)
    unknown = tuple(dict.fromkeys(word for word in words if word not in known))
    if unknown and vocabulary.unknown is None:
        raise DataError(f"{unknown[0]!r} is not in the vocabulary, and no class stands for unknown words")
    classes = [known.get(word, vocabulary.unknown) for word in words]
    read = tuple(vocabulary.words[number] for number in classes if number is not None)
    start = [vocabulary.eos, *classes] if has_eos else classes
    return Prompt(tuple(number for number in start if number is not None), read, unknown)


def explain_unknown(prompt: Prompt, vocabulary: Vocabulary) -> str:
    """What a person should know of prompt words without a class: how they are read, and whether lower case is known."""
    known = _numbers(vocabulary)
    hints = [
        f"{word!r}" + (f" ({word.lower()!r} is known)" if word.lower() in known else "") for word in prompt.unknown
    ]
    return f"not in the vocabulary, read as {vocabulary.words[vocabulary.unknown or 0]}: {', '.join(hints)}"


def stop_classes(words: Iterable[str], vocabulary: Vocabulary) -> frozenset[int]:
    """Classes of the words that end a text. Raises: DataError for a word that never comes."""
    known = _numbers(vocabulary)
    for word in words:
        if word not in known:
            raise DataError(f"--stop {word!r}: not in the vocabulary, so it would never come{suggest(word, known)}")
    return frozenset(known[word] for word in words)


def banned_classes(vocabulary: Vocabulary, *, unknown: bool) -> frozenset[int]:
    """Classes never drawn: the one that no word has, and with `unknown` those that stand for unknown words.

    In the continuumlm protocol these are two: its UNK, and the <unk> that the corpus writes.
    """
    banned = {vocabulary.dead, vocabulary.unknown if unknown else None}
    banned |= {number for number, word in enumerate(vocabulary.words) if unknown and word == UNKNOWN}
    return frozenset(number for number in banned if number is not None)


def generate(
    decoder: Decoder,
    start: tuple[int, ...],
    *,
    max_words: int,
    temperature: float,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    samples: int = 1,
    stop: frozenset[int] = frozenset(),
    banned: frozenset[int] = frozenset(),
) -> Iterator[tuple[int | None, ...]]:
    """Yield the next class of each of `samples` = K texts, as each is drawn: a tuple (K), None for a text that ended.

    A text ends before a class of `stop`, which is not yielded, or after `max_words`. One seed and one K give one
    result. The decoder must be fresh; `start` is not empty.
    """
    generator = torch.Generator().manual_seed(seed)
    device = next(decoder.model.parameters()).device
    without = torch.tensor(sorted(banned), dtype=torch.int64, device=device)
    fed = torch.tensor(start, device=device).expand(samples, -1)
    ended = [False] * samples
    for _ in range(max_words):
        logits = decoder.feed_last(fed).index_fill(1, without, float("-inf"))
        drawn = sample(logits, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator)
        ended = [was or number in stop for was, number in zip(ended, drawn.tolist(), strict=True)]
        if all(ended):
            return
        yield tuple(None if over else number for over, number in zip(ended, drawn.tolist(), strict=True))
        fed = drawn[:, None].to(device)


def _numbers(vocabulary: Vocabulary) -> dict[str, int]:
    """Word -> class, without the class that no word has."""
    return {word: number for number, word in enumerate(vocabulary.words) if number != vocabulary.dead}
