"""What `depthtime generate` writes: words to standard output as they come, everything about them to the log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from depthtime.config import Study
from depthtime.generate.decoder import Decoder, refuse_adaptive
from depthtime.generate.sampling import check_options
from depthtime.generate.stored import load_stored
from depthtime.generate.text import Prompt, banned_classes, encode_prompt, explain_unknown, generate, stop_classes
from depthtime.progress import logger


@dataclass(frozen=True)
class Options:
    """How to go on from a prompt; see `depthtime generate --help`."""

    max_words: int = 100
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 0.0
    seed: int = 0
    samples: int = 1
    stop: tuple[str, ...] = ()
    no_unknown: bool = False


def write_text(
    study: Study,
    group: str,
    run: str,
    seed: int,
    prompt: str,
    options: Options,
    out: TextIO,
    weights: Path | None = None,
) -> bool:
    """Write prompt and words to `out`: one text word by word, several one after the other at the end, a line each.

    Returns False when the person interrupted it; what was drawn until then is written all the same.
    Raises: DepthtimeError, before anything is written, for a run, option, prompt or weights that cannot be used.
    """
    check_options(options.temperature, options.top_k, options.top_p)
    refuse_adaptive(study.run(group, run).run, f"{group}/{run}")
    model, vocabulary = load_stored(study, group, run, seed, weights)
    encoded = encode_prompt(prompt, vocabulary)
    stop = stop_classes(options.stop, vocabulary)
    if encoded.unknown:
        logger.info("%s", explain_unknown(encoded, vocabulary))
    decoder = Decoder(model)
    logger.info("%s", _described(f"{group}/{run}/{seed}", weights, decoder, options))
    drawn = generate(
        decoder,
        encoded.classes,
        max_words=options.max_words,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=options.seed,
        samples=options.samples,
        stop=stop,
        banned=banned_classes(vocabulary, unknown=options.no_unknown),
    )
    return _write(drawn, vocabulary.words, encoded, options.samples, out)


def _write(
    drawn: Iterator[tuple[int | None, ...]], names: tuple[str, ...], prompt: Prompt, samples: int, out: TextIO
) -> bool:
    """Write words as they are drawn; True when all came."""
    texts = [list(prompt.words) for _ in range(samples)]
    began, finished = time.perf_counter(), False
    try:
        if samples == 1:
            out.write(" ".join(prompt.words))
            out.flush()
        for row in drawn:
            for text, number in zip(texts, row, strict=True):
                if number is not None:
                    text.append(names[number])
            if samples == 1:
                out.write((" " if len(texts[0]) > 1 else "") + texts[0][-1])
                out.flush()
        finished = True
    except KeyboardInterrupt:
        pass
    out.write("\n" if samples == 1 else "".join(" ".join(text) + "\n" for text in texts))
    out.flush()
    count, elapsed_s = sum(map(len, texts)) - samples * len(prompt.words), time.perf_counter() - began
    logger.info("%s", f"{'' if finished else 'interrupted; '}{count} words, {count / elapsed_s:.0f} a second")
    return finished


def _described(name: str, weights: Path | None, decoder: Decoder, options: Options) -> str:
    """Model and sampling in one line: what a person needs to get the same text again."""
    how = [f"temperature {options.temperature:g}" if options.temperature else "the likeliest word each time"]
    how += [f"top-k {options.top_k}"] if options.top_k and options.temperature else []
    how += [f"top-p {options.top_p:g}"] if options.top_p and options.temperature else []
    how += [f"seed {options.seed}"] if options.temperature else []
    return f"{name}{f' with {weights}' if weights else ''}, window {decoder.window}: {', '.join(how)}"
