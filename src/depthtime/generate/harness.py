"""A trained run behind the interface of lm-evaluation-harness, so that any of its tasks can be asked (extra `harness`).

Text becomes words by splitting at white space, context and continuation each by itself; with `lower` they are put into
lower case first. In the standard protocol a line break is <eos>, and <eos> stands before every text; runs of the other
protocol have no such word and start from their unknown word. Words that the vocabulary lacks are read as the unknown
word; `unknown` and `words` count them, for a score over many of them says little. Windows follow the harness: a
continuation is scored after as many words as fit before it, a rolling score takes the windows of `evaluate.sequences`.
Source: Gao et al., A framework for few-shot language model evaluation, lm_eval.api.model.LM.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

from depthtime.config import StandardProtocol, Study, read_yaml
from depthtime.data.vocabulary import EOS
from depthtime.errors import ConfigError, DataError
from depthtime.evaluate.sequences import score_sequences
from depthtime.generate.decoder import Decoder, refuse_adaptive
from depthtime.generate.stored import load_stored
from depthtime.generate.text import banned_classes, generate

MAX_WORDS = 64  # of a generated answer, where a task sets no limit


class HarnessLM(LM):  # type: ignore[misc]
    """The run group/run/seed with its stored weights.

    Raises: ConfigError, RecordError or DataError for a run or weights that cannot be used, or a vocabulary without a
    class for unknown words.
    """

    def __init__(self, study: Study, group: str, run: str, seed: int, *, lower: bool = False, batch_size: int = 32):
        super().__init__()
        refuse_adaptive(study.run(group, run).run, f"{group}/{run}")
        self.model, self.vocabulary = load_stored(study, group, run, seed)
        if self.vocabulary.unknown is None:
            raise DataError(f"{group}/{run}: its vocabulary has no class for unknown words, which tasks may hold")
        dataset = study.run(group, run).dataset
        self.stride = dataset.stride if isinstance(dataset, StandardProtocol) else dataset.positions
        self.lower, self.batch_size = lower, batch_size
        self.classes = {word: n for n, word in enumerate(self.vocabulary.words) if n != self.vocabulary.dead}
        self.words = self.unknown = 0

    @property
    def start(self) -> int:
        """The word that stands before every text."""
        eos, unknown = self.vocabulary.eos, self.vocabulary.unknown
        assert unknown is not None
        return unknown if eos is None else eos

    def encode(self, text: str) -> list[int]:
        """Class numbers of a text's words; counts them, and those that are read as the unknown word."""
        text = text.lower() if self.lower else text
        words = (text if self.vocabulary.eos is None else text.replace("\n", f" {EOS} ")).split()
        unknown = self.vocabulary.unknown
        assert unknown is not None
        self.words += len(words)
        self.unknown += sum(word not in self.classes for word in words)
        return [self.classes.get(word, unknown) for word in words]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """(log-probability in nats, whether each word is the likeliest) of each continuation after its context."""
        sequences = []
        for context, continuation in (request.args for request in requests):
            before = [self.start, *self.encode(context)]
            sequences.append((before + self.encode(continuation), len(before)))
        found = score_sequences(self.model, sequences, self.batch_size, self.stride)
        return [(float(scored.log_probs.sum()), bool(scored.is_top.all())) for scored in found]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """Log-probability of each whole text, every word once, in nats."""
        sequences = [([self.start, *self.encode(request.args[0])], 1) for request in requests]
        found = score_sequences(self.model, sequences, self.batch_size, self.stride)
        return [float(scored.log_probs.sum()) for scored in found]

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """The likeliest next words after each context, up to a text of `until` or `max_gen_toks` words.

        Raises: DataError for a task that asks to sample: what the harness compares must not be random.
        """
        return [self._generate(*request.args) for request in requests]

    def _generate(self, context: str, options: dict[str, Any]) -> str:
        if options.get("do_sample") or options.get("temperature"):
            raise DataError("the task asks for sampled text (do_sample, temperature); set do_sample: false")
        until = [options["until"]] if isinstance(options.get("until"), str) else options.get("until") or []
        drawn = generate(
            Decoder(self.model),
            (self.start, *self.encode(context)),
            max_words=options.get("max_gen_toks", MAX_WORDS),
            temperature=0,
            banned=banned_classes(self.vocabulary, unknown=False),
        )
        text = ""
        for (number,) in drawn:
            assert number is not None  # nothing stops the draw but its length
            word = "\n" if number == self.vocabulary.eos else self.vocabulary.words[number]
            text += word if not text or word == "\n" or text.endswith("\n") else f" {word}"
            if cuts := [text.index(end) for end in until if end and end in text]:
                return text[: min(cuts)]
        return text


def evaluate_tasks(model: HarnessLM, tasks: Path, *, num_fewshot: int | None, limit: int | None) -> dict[str, Any]:
    """Results of the tasks that a YAML file, or the YAML files of a folder, describe.

    Raises: ConfigError for a path without tasks.
    """
    names = list(task_names(tasks))
    folder = tasks if tasks.is_dir() else tasks.parent
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    found = lm_eval.simple_evaluate(
        model=model,
        tasks=names,
        task_manager=manager,
        num_fewshot=num_fewshot,
        limit=limit,
        log_samples=False,  # no text of a task in what is written
        bootstrap_iters=1000,
    )
    keep = ("results", "n-shot", "n-samples", "versions")
    return {key: found[key] for key in keep} | {"words": model.words, "unknown_words": model.unknown}


def task_names(path: Path) -> Iterable[str]:
    """Names of the tasks of a YAML file, or of all YAML files of a folder."""
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    raw = [read_yaml(file) for file in files]
    names = [data["task"] for data in raw if isinstance(data, dict) and isinstance(data.get("task"), str)]
    if not names:
        raise ConfigError([f"{path}: no task; expected a YAML file with `task: name`, or a folder of such files"])
    return names
