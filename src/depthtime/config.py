"""The only reader of params.yaml: `load_params` turns it into one frozen `Study`, or lists all its mistakes at once.

YAML is read as version 1.2 with ruamel, as DVC reads it, so `1e-3` is a number and `on` is text. Keys that can
move a number have no default. No torch here: Snakemake and the tests import this file often.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from depthtime.errors import ConfigError

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
RESERVED_KEYS = {"size", "nfiles"}  # DVC's run cache ignores parameters of these names and restores wrong outputs

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


FixedSolver = Literal["euler", "euler_right", "midpoint", "heun2", "rk4", "rk4_38"]
AdaptiveSolver = Literal["adaptive_heun", "bosh3", "dopri5", "tsit5", "dopri8"]


class Part(BaseModel):
    """One mapping in params.yaml: frozen, without unknown keys, without silent conversions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Corpus(Part):
    """Where a text comes from. `source`: ptb, docstrings, or file:PATH (plain text, one file)."""

    source: Annotated[str, Field(pattern=r"^(ptb|docstrings|file:.+)$")]
    local_dir: str | None = None
    mirrors: tuple[str, ...] = ()
    sha256: (
        dict[Literal["train", "valid", "test"], Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]] | None
    )  # by part; null: whatever is there

    def expected_sum(self, part: str) -> str | None:
        """The sha256 that a part of the text must have, or None when any text will do."""
        return {str(name): value for name, value in (self.sha256 or {}).items()}.get(part)


class ContinuumProtocol(Part):
    """The protocol of the ContinuumLM source: one stream without <eos>, cut into chunks of `window` tokens."""

    corpus: str
    protocol: Literal["continuumlm"]
    vocabulary: Literal["frequency", "first_appearance"]
    vocabulary_size: Annotated[int, Field(ge=3)]
    window: Annotated[int, Field(ge=2)]
    split: Literal["hash", "shuffle", "contiguous"]
    train_fraction: Share
    split_seed: Count
    keep_multiple: Positive

    @property
    def positions(self) -> int:
        """Predictions a window, N."""
        return self.window - 1


class StandardWindows(Part):
    """The word-level standard: <eos> ends each line and opens the stream, and every token is scored once."""

    corpus: str
    vocabulary: Literal["frequency"]
    vocabulary_size: Annotated[int, Field(ge=3)]
    window: Positive
    stride: Positive
    split: Literal["official", "contiguous"]

    @property
    def positions(self) -> int:
        """Predictions a window, N."""
        return self.window

    @model_validator(mode="after")
    def _stride_within_window(self) -> Self:
        if self.stride > self.window:
            raise ValueError(f"stride = {self.stride} is larger than window = {self.window}: tokens would be skipped")
        return self


class StandardProtocol(StandardWindows):
    """Words from the training part of its own corpus."""

    protocol: Literal["standard"]


class SharedVocabularyProtocol(StandardWindows):
    """Words from the training parts of several corpora, which count alike: a model can go on from one to another."""

    protocol: Literal["standard_shared"]
    vocabulary_from: Annotated[tuple[str, ...], Field(min_length=1)]  # corpora, its own among them

    @model_validator(mode="after")
    def _own_corpus_once(self) -> Self:
        listed = list(self.vocabulary_from)
        if self.corpus not in listed:
            raise ValueError(f"vocabulary_from = {listed} leaves out the corpus itself, {self.corpus}; add it")
        if len(set(listed)) < len(listed):
            raise ValueError(f"vocabulary_from = {listed} names a corpus twice")
        return self


AnyProtocol = ContinuumProtocol | StandardProtocol | SharedVocabularyProtocol
Dataset = Annotated[AnyProtocol, Field(discriminator="protocol")]


class Ngram(Part):
    heldout_fraction: Share
    alphas: Annotated[tuple[Rate, ...], Field(min_length=1)]
    orders: Annotated[tuple[Annotated[int, Field(ge=2, le=5)], ...], Field(min_length=1)]


class ModelSizes(Part):
    """What all models of a group share. `width` D, `heads` H."""

    width: Positive
    heads: Positive
    ff_width: Positive
    positions: Literal["fixed", "trained"]
    embedding_std: Rate

    @model_validator(mode="after")
    def _heads_divide_width(self) -> ModelSizes:
        if self.width % self.heads:
            raise ValueError(f"heads = {self.heads} does not divide width = {self.width}")
        if self.width % 2:
            raise ValueError(f"width = {self.width} is odd; sinusoidal positions need pairs")
        return self

    @property
    def has_learned_positions(self) -> bool:
        """Whether a model has weights for each position, and so cannot read more of them."""
        return self.positions == "trained"


class FormSizes(Part):
    """Sizes of pre-norm models in the form of GPT-2 or of Llama. `width` D, `heads` H; `dropout` is a probability."""

    form: Literal["gpt", "llama"]
    width: Positive
    heads: Positive
    ff_width: Positive
    dropout: Annotated[float, Field(ge=0, lt=1)]

    @model_validator(mode="after")
    def _heads_divide_width(self) -> FormSizes:
        if self.width % self.heads:
            raise ValueError(f"heads = {self.heads} does not divide width = {self.width}")
        if self.form == "llama" and self.width // self.heads % 2:
            raise ValueError(f"heads of width {self.width // self.heads} are odd; rotary positions need pairs")
        return self

    @property
    def has_learned_positions(self) -> bool:
        """Whether a model has weights for each position, and so cannot read more of them."""
        return self.form == "gpt"


def _kind_of_sizes(value: Any) -> str:
    has_form = "form" in value if isinstance(value, dict) else isinstance(value, FormSizes)
    return "form_sizes" if has_form else "model_sizes"


Sizes = Annotated[
    Annotated[ModelSizes, Tag("model_sizes")] | Annotated[FormSizes, Tag("form_sizes")], Discriminator(_kind_of_sizes)
]


class Train(Part):
    """The recipe of a group. Times are in optimiser steps."""

    max_steps: Positive
    batch_size: Positive
    batch_order: Literal["seeded", "source"]
    optimizer: Literal["adam", "adamw"]
    learning_rate: Rate
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]]
    eps: Rate
    weight_decay: Amount
    schedule: Literal["constant", "cosine"]
    warmup_steps: Count
    final_fraction: Fraction
    clip_norm: Rate | None
    eval_every: Positive
    eval_batch_size: Positive
    precision: Literal["float32", "float64", "bfloat16"]
    device: Literal["auto", "cpu", "cuda", "mps"]
    threads: Positive

    @model_validator(mode="after")
    def _steps_fit(self) -> Train:
        if self.warmup_steps > self.max_steps:
            raise ValueError(f"warmup_steps = {self.warmup_steps} exceeds max_steps = {self.max_steps}")
        if self.eval_every > self.max_steps:
            raise ValueError(f"eval_every = {self.eval_every} exceeds max_steps = {self.max_steps}")
        return self


class Run(Part):
    """A row of a group: one model. `learning_rate` and `beta2` (the second of `betas`) replace the group's.

    Weights of `keep_weights` seeds are stored.
    """

    learning_rate: Rate | None = None
    beta2: Annotated[float, Field(ge=0, lt=1)] | None = None
    keep_weights: tuple[Count, ...]


class DiscreteRun(Run):
    model: Literal["discrete"]
    layers: Positive


class Integrated(Run):
    """A run with a vector field integrated over depth time by `solver` in `num_steps` equal steps."""

    solver: FixedSolver
    num_steps: Positive
    gradient: Literal["direct"]
    t0: Annotated[float, Field(allow_inf_nan=False)]
    t1: Annotated[float, Field(allow_inf_nan=False)]

    @model_validator(mode="after")
    def _interval(self) -> Integrated:
        if not self.t1 > self.t0:
            raise ValueError(f"t1 = {self.t1} is not after t0 = {self.t0}")
        return self


class ContinuousRun(Integrated):
    model: Literal["continuous"]


class FusedRun(Integrated):
    """The continuous model with a faster solve of the same numbers, to rounding."""

    model: Literal["fused"]


class SharedRun(Run):
    """One block applied `layers` times."""

    model: Literal["shared"]
    layers: Positive


class ContinuousVariantRun(Integrated):
    """The continuous model with another field, depth time as an input, or a norm before the head."""

    model: Literal["continuous_variant"]
    field: Literal["postnorm", "difference", "prenorm"]
    reads_time: bool
    final_norm: bool


class TransformerRun(Run):
    """A discrete pre-norm transformer. `sizes` replaces the group's, for a baseline with equally many parameters."""

    model: Literal["transformer"]
    layers: Positive
    wiring: Literal["sequential", "parallel"]
    step_scale: Literal["one", "inverse_depth"]
    shares_weights: bool
    sizes: FormSizes | None = None


class DiffEqFormerRun(Run):
    """A layer whose weights are generated from depth time, integrated over [0, 1] in `num_steps` equal steps.

    `sinusoids` s and `depth_features` e (0: constant weights) size the generators; `time_scale` multiplies t in the
    sinusoids; `decays_generators` lets weight decay act on them (the llama form decays everything).
    """

    model: Literal["diffeqformer"]
    num_steps: Positive
    solver: FixedSolver
    sinusoids: Positive
    depth_features: Count
    time_scale: Rate
    decays_generators: bool


AnyRun = Annotated[
    DiscreteRun | ContinuousRun | FusedRun | SharedRun | ContinuousVariantRun | TransformerRun | DiffEqFormerRun,
    Field(discriminator="model"),
]


class Select(Part):
    """Take each run's learning rate from the best (lowest validation loss) of the named runs of another group."""

    group: str
    among: dict[str, Annotated[tuple[str, ...], Field(min_length=1)]]


class Group(Part):
    """Runs that share data, sizes, recipe and seeds. Pairs are later runs minus the first, or minus those of `against`.

    `against` names runs of other groups (group/run) that have the same data and at least these seeds. `source`, whose
    claims the group is for, sorts tables and figures.
    """

    source: Literal["continuumlm", "diffeqformer"] = "continuumlm"
    data: str
    seeds: Annotated[tuple[Count, ...], Field(min_length=1)]
    model: Sizes
    train: Train
    select: Select | None = None
    against: tuple[str, ...] = ()
    runs: Annotated[dict[str, AnyRun], Field(min_length=1)]

    @model_validator(mode="after")
    def _seeds_differ(self) -> Group:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds = {list(self.seeds)} repeats a seed")
        return self

    @model_validator(mode="after")
    def _models_fit_sizes(self) -> Group:
        if problems := list(misfits(self.model, self.runs)):
            raise ValueError("; ".join(problems))
        return self


def misfits(sizes: ModelSizes | FormSizes, runs: Mapping[str, AnyRun]) -> Iterator[str]:
    """What rows ask for that sizes of their group do not allow."""
    for name, run in runs.items():
        if isinstance(run, TransformerRun | DiffEqFormerRun) != isinstance(sizes, FormSizes):
            needs = "`form`" if isinstance(sizes, ModelSizes) else "`positions`"
            yield f"runs.{name}: model = {run.model} needs a group whose `model` has {needs}"
        elif isinstance(run, DiffEqFormerRun) and isinstance(sizes, FormSizes):
            if sizes.dropout > 0 and run.solver not in {"euler", "euler_right"}:
                yield f"runs.{name}: solver = {run.solver} has several stages a step; expected dropout = 0"
            if sizes.form == "llama" and not run.decays_generators:
                yield f"runs.{name}: decays_generators = false; the llama form decays everything, expected true"


class Gradients(Part):
    """How far gradients of each method are from exact ones, at what memory and time. `run` is group/run/seed."""

    run: str
    methods: Annotated[tuple[Literal["direct", "checkpointed", "adjoint", "reversible"], ...], Field(min_length=1)]
    steps: Annotated[tuple[Positive, ...], Field(min_length=1)]
    batch_size: Positive
    rounds: Annotated[int, Field(ge=3)]
    threads: Positive


class SolverSwap(Part):
    """Trained weights under other solvers: perplexity of `windows` validation windows, and leaks of adaptive ones."""

    run: str
    fixed: Annotated[dict[FixedSolver, Annotated[tuple[Positive, ...], Field(min_length=1)]], Field(min_length=1)]
    adaptive: Annotated[tuple[AdaptiveSolver, ...], Field(min_length=1)]
    tolerances: Annotated[tuple[Rate, ...], Field(min_length=1)]  # both rtol and atol
    windows: Positive
    batch_size: Annotated[int, Field(ge=2)]
    leak_batches: Positive
    max_nfe: Positive
    threads: Positive


class Decoding(Part):
    """Cached decoding against full recomputation: `splits` random splits, and times after `prefixes` positions."""

    runs: Annotated[tuple[str, ...], Field(min_length=1)]
    splits: Positive
    batch_size: Positive
    prefixes: Annotated[tuple[Positive, ...], Field(min_length=1)]
    rounds: Annotated[int, Field(ge=3)]
    threads: Positive


class Clustering(Part):
    """Tokens moved by attention alone: `seeds` systems of `tokens` tokens in each of `dimensions`, by Euler steps."""

    dimensions: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Field(min_length=1)]
    tokens: Annotated[int, Field(ge=2)]
    seeds: Annotated[int, Field(ge=2)]  # 0, 1, ..., each with its own tokens and matrices
    step_size: Rate
    num_steps: Positive
    record_every: Positive  # in steps
    threshold: Rate  # distance of neighbours in a cluster; the next two show how much it matters
    tight_threshold: Rate
    wide_threshold: Rate
    few: Positive  # so many components or fewer: collapsed
    resamples: Positive  # of the bootstrap over seeds


class TrainedClustering(Part):
    """Tokens moved by the trained weights of `run` (group/run, every kept seed): `draws` of `tokens` random words."""

    run: str
    tokens: Annotated[int, Field(ge=2)]
    draws: Positive
    threshold: Rate  # distance of neighbours in a cluster
    threads: Positive


class Spectra(Part):
    """Eigenvalues over depth of `runs` (group/run), every seed whose weights are kept.

    `ff_units`: how many hidden units of the feed-forward part are drawn, beside all of them.
    """

    runs: Annotated[tuple[str, ...], Field(min_length=1)]
    ff_units: tuple[Positive, ...]
    resamples: Positive  # of the bootstrap over seeds and heads
    threads: Positive


class Sensitivity(Part):
    """Which words of `sentences` (a file) matter to `runs` (group/run), all seeds whose weights are kept."""

    runs: Annotated[tuple[str, ...], Field(min_length=1)]
    sentences: str
    directions: Positive  # random perturbations of each word that are carried along, at most the width
    resamples: Positive  # of the bootstrap over sentences
    threads: Positive

    @model_validator(mode="after")
    def _runs_differ(self) -> Sensitivity:
        if len({name.rpartition("/")[2] for name in self.runs}) < len(self.runs):
            raise ValueError(f"runs = {list(self.runs)}: two have the same name, by which the record tells them apart")
        return self


class Downstream(Part):
    """Two runs of a group on last words of held-out sentences and on minimal pairs. Differences: second minus first."""

    group: str
    runs: tuple[str, str]
    seeds: Annotated[tuple[Count, ...], Field(min_length=1)]
    pairs: Annotated[str, Field(min_length=1)]  # a YAML file, see data/minimal_pairs.py
    min_words: Positive  # of a sentence whose last word is asked for
    not_asked: tuple[str, ...]  # last words that stand for many, such as N for every number
    batch_size: Positive
    resamples: Positive  # of the bootstrap over sentences
    threads: Positive


class Bench(Part):
    """`runs` on each of `threads`; `frontier` on one thread; `speed`, a continuous run, part by part on one thread."""

    runs: Annotated[tuple[str, ...], Field(min_length=1)]
    threads: Annotated[tuple[Positive, ...], Field(min_length=1)]
    frontier: tuple[str, ...]
    speed: str
    peak_size: Positive  # of the square matrix product that stands for the machine's peak
    warmup_steps: Positive
    rounds: Annotated[int, Field(ge=3)]


class Study(Part):
    corpora: Annotated[dict[str, Corpus], Field(min_length=1)]
    datasets: Annotated[dict[str, Dataset], Field(min_length=1)]
    ngram: Ngram
    groups: Annotated[dict[str, Group], Field(min_length=1)]
    bench: Bench
    gradients: Gradients
    solver_swap: SolverSwap
    decoding: Decoding
    clustering: Clustering
    trained_clustering: TrainedClustering
    spectra: Spectra
    sensitivity: Sensitivity
    downstream: Downstream

    def group(self, name: str) -> Group:
        """A group by name, or an error that lists the names there are."""
        _known(self.groups, name, "group")
        return self.groups[name]

    def run(self, group: str, run: str) -> RunConfig:
        """The filled-in configuration of one row, or an error that lists the names there are."""
        _known(self.group(group).runs, run, f"run of group {group}")
        return RunConfig(study=self, group_name=group, run_name=run)

    def all_runs(self) -> Iterator[tuple[str, str, int]]:
        """(group, run, seed) of every run there is to train, in the order of params.yaml."""
        for group, row in self.groups.items():
            for run in row.runs:
                for seed in row.seeds:
                    yield group, run, seed


class RunConfig(Part):
    """One run with what it inherits from its group; `digest` names everything that can move its numbers."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    study: Study
    group_name: str
    run_name: str

    @property
    def group(self) -> Group:
        return self.study.groups[self.group_name]

    @property
    def run(self) -> AnyRun:
        return self.group.runs[self.run_name]

    @property
    def dataset(self) -> AnyProtocol:
        return self.study.datasets[self.group.data]

    @property
    def sizes(self) -> ModelSizes | FormSizes:
        """The group's sizes, or the row's where it has its own."""
        run = self.run
        return run.sizes if isinstance(run, TransformerRun) and run.sizes is not None else self.group.model

    @property
    def train(self) -> Train:
        """The group's recipe with the row's beta2 and learning rate (`with_learning_rate` puts in a selected one)."""
        run, recipe = self.run, self.group.train
        update: dict[str, Any] = {} if run.learning_rate is None else {"learning_rate": run.learning_rate}
        if run.beta2 is not None:
            update["betas"] = (recipe.betas[0], run.beta2)
        return recipe.model_copy(update=update)

    def with_learning_rate(self, rate: float) -> RunConfig:
        """The same run with another learning rate, as a selection stage chose it."""
        run = self.run.model_copy(update={"learning_rate": rate})
        group = self.group.model_copy(update={"runs": {**self.group.runs, self.run_name: run}})
        study = self.study.model_copy(update={"groups": {**self.study.groups, self.group_name: group}})
        return RunConfig(study=study, group_name=self.group_name, run_name=self.run_name)

    def described(self) -> dict[str, Any]:
        """Plain data for records and trackers: dataset, model, sizes, recipe."""
        run = self.run.model_dump(mode="json", exclude={"keep_weights", "learning_rate", "beta2", "sizes"})
        return {
            "data": self.group.data,
            "dataset": self.dataset.model_dump(mode="json"),
            "sizes": self.sizes.model_dump(mode="json"),
            "model": run,
            "train": self.train.model_dump(mode="json"),
        }

    @property
    def digest(self) -> str:
        """sha256 of what is described, 64 hexadecimal digits."""
        return digest(self.described())


def digest(data: Any) -> str:
    """sha256 of plain data in canonical JSON."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def run_address(name: str) -> tuple[str, str, int]:
    """(group, run, seed) of a name such as core/ode/42."""
    pieces = name.split("/")
    if len(pieces) != 3 or not pieces[2].isdigit():
        raise ConfigError([f"{name!r} is not a run; expected group/run/seed, such as core/ode/42"])
    return pieces[0], pieces[1], int(pieces[2])


def read_yaml(path: Path | str) -> Any:
    """Plain data of a YAML 1.2 file; anchors and merge keys are resolved, a repeated key is an error."""
    path = Path(path)
    try:
        return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError([f"{path}: no such file"]) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            [f"{path}: not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8"]
        ) from None
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError([f"{path}:{where} is not valid YAML: {what}"]) from None


def load_params(path: Path | str = "params.yaml") -> Study:
    """Read and check params.yaml.

    Raises: ConfigError with every problem found, one line each: file, key, value, expectation, hint.
    """
    raw = read_yaml(path)
    if not isinstance(raw, dict):
        raise ConfigError([f"{path}: holds {kind_of(raw)}, expected a mapping with {', '.join(Study.model_fields)}"])
    problems = [f"{path}: {line}" for line in _bad_names(raw)]
    study = None
    try:
        study = Study.model_validate(as_tuples(raw))
    except ValidationError as error:
        problems += [f"{path}: {explain(item, raw)}" for item in error.errors(include_url=False)]
    problems += [f"{path}: {line}" for line in _dangling(raw)]
    if problems or study is None:
        raise ConfigError(list(dict.fromkeys(problems)))
    return study


def as_tuples(node: Any) -> Any:
    """Lists as tuples: a frozen study holds nothing that can be appended to."""
    if isinstance(node, dict):
        return {key: as_tuples(value) for key, value in node.items()}
    return tuple(map(as_tuples, node)) if isinstance(node, list) else node


def _bad_names(raw: dict[str, Any]) -> Iterator[str]:
    """Names that would break a path, a stage address or DVC's run cache."""

    def walk(node: Any, at: str) -> Iterator[str]:
        if isinstance(node, dict):
            for key, value in node.items():
                here = f"{at}.{key}" if at else str(key)
                if key in RESERVED_KEYS:
                    yield f"{here}: this key name is ignored by DVC's run cache; rename it"
                elif not (isinstance(key, str) and NAME.fullmatch(key)):
                    yield f"{here}: a name takes letters, digits and '_', and starts with a letter"
                yield from walk(value, here)

    yield from walk(raw, "")


def _dangling(raw: dict[str, Any]) -> Iterator[str]:
    """References that lead nowhere. Works on plain data, so that they are told together with every other mistake."""
    corpora, datasets, groups = (_rows(raw.get(key)) for key in ("corpora", "datasets", "groups"))
    for name, dataset in datasets.items():
        corpus = dataset.get("corpus")
        if isinstance(corpus, str) and corpus not in corpora:
            yield f"datasets.{name}.corpus = {corpus!r}: no such corpus{suggest(corpus, corpora)}"
        for other in _items(dataset.get("vocabulary_from")):
            if isinstance(other, str) and other not in corpora:
                yield f"datasets.{name}.vocabulary_from: {other!r} is no corpus{suggest(other, corpora)}"
    for name, group in groups.items():
        at, data, seeds = f"groups.{name}", group.get("data"), group.get("seeds")
        if isinstance(data, str) and data not in datasets:
            yield f"{at}.data = {data!r}: no such dataset{suggest(data, datasets)}"
        for run, row in _rows(group.get("runs")).items():
            for seed in _items(row.get("keep_weights")):
                if isinstance(seeds, list) and seed not in seeds:
                    yield f"{at}.runs.{run}.keep_weights: seed {seed} is not among seeds {seeds}"
        if isinstance(group.get("select"), dict):
            yield from _dangling_select(groups, name, group["select"])
        for entry in _items(group.get("against")):
            yield from _dangling_against(groups, name, entry)
    runs = [f"{name}/{run}" for name, group in groups.items() for run in _rows(group.get("runs"))]
    bench = _rows(raw).get("bench", {})
    for key in ("runs", "frontier", "speed"):
        named = bench.get(key)
        for entry in [named] if isinstance(named, str) else _items(named):
            if entry not in runs:
                yield f"bench.{key}: {entry!r} is not a run{suggest(entry, runs)}; expected group/run"
    yield from _without_weights(raw, groups)
    yield from _without_spectra(_rows(raw).get("spectra", {}), groups)


def _without_weights(raw: dict[str, Any], groups: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Stages that measure trained weights name runs (group/run/seed) whose weights are kept."""
    kept = [
        f"{name}/{run}/{seed}"
        for name, group in groups.items()
        for run, row in _rows(group.get("runs")).items()
        for seed in _items(row.get("keep_weights"))
    ]
    rows = _rows(raw)
    named = [(f"{stage}.run", rows.get(stage, {}).get("run")) for stage in ("gradients", "solver_swap")]
    named += [("decoding.runs", entry) for entry in _items(rows.get("decoding", {}).get("runs"))]
    asked = rows.get("downstream", {})
    named += [
        ("downstream.runs, seeds", f"{asked.get('group')}/{run}/{seed}")
        for run in _items(asked.get("runs"))
        for seed in _items(asked.get("seeds"))
    ]
    for at, entry in named:
        if isinstance(entry, str) and entry not in kept:
            yield f"{at}: {entry!r} keeps no weights{suggest(entry, kept)}; expected group/run/seed of keep_weights"
    keeping = {entry.rpartition("/")[0] for entry in kept}
    of_all_seeds = [("trained_clustering.run", rows.get("trained_clustering", {}).get("run"))]
    for stage in ("spectra", "sensitivity"):
        of_all_seeds += [(f"{stage}.runs", entry) for entry in _items(rows.get(stage, {}).get("runs"))]
    for at, entry in of_all_seeds:
        if isinstance(entry, str) and entry not in keeping:
            yield f"{at}: {entry!r} keeps no weights{suggest(entry, keeping)}; expected group/run with keep_weights"


def _without_spectra(spectra: dict[str, Any], groups: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Spectra need models whose layers are matrices of one kind, and enough hidden units."""
    rows = {f"{name}/{run}": row for name, group in groups.items() for run, row in _rows(group.get("runs")).items()}
    entries = [entry for entry in _items(spectra.get("runs")) if isinstance(entry, str)]
    for entry in entries:
        row, at = rows.get(entry, {}), f"spectra.runs: {entry!r}"
        if row and row.get("model") not in {"transformer", "diffeqformer"}:
            yield f"{at} is of model {row.get('model')!r}; expected transformer or diffeqformer"
        sizes = row.get("sizes") or groups.get(entry.partition("/")[0], {}).get("model")
        width = sizes.get("ff_width") if isinstance(sizes, dict) else None
        for units in _items(spectra.get("ff_units")):
            if isinstance(units, int) and isinstance(width, int) and units > width:
                yield f"spectra.ff_units: {units} of the {width} hidden units of {entry}; expected at most {width}"
    names = [entry.partition("/")[2] for entry in entries]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"spectra.runs: two runs are called {name!r}; the record has one place for each name"


def _dangling_select(groups: dict[str, dict[str, Any]], name: str, select: dict[str, Any]) -> Iterator[str]:
    at, searched = f"groups.{name}.select", select.get("group")
    if searched not in groups or searched == name:
        yield f"{at}.group = {searched!r}: no such other group{suggest(searched, groups)}"
        return
    among: dict[str, Any] = select["among"] if isinstance(select.get("among"), dict) else {}
    known = _rows(groups[searched].get("runs"))
    for run in _rows(groups[name].get("runs")):
        if run not in among:
            yield f"{at}.among: names no candidates for run {run!r}"
    for run, candidates in among.items():
        for candidate in _items(candidates):
            if candidate not in known:
                yield f"{at}.among.{run}: {candidate!r} is not a run of group {searched}{suggest(candidate, known)}"


def _dangling_against(groups: dict[str, dict[str, Any]], name: str, entry: Any) -> Iterator[str]:
    """A baseline must be a run of another group with the same data and steps, and with all seeds of this one."""
    at, (other, _, run) = f"groups.{name}.against", str(entry).partition("/")
    if other == name or run not in _rows(groups.get(other, {}).get("runs")):
        names = [f"{group}/{row}" for group, rows in groups.items() for row in _rows(rows.get("runs"))]
        yield f"{at}: {entry!r} is not a run of another group{suggest(entry, names)}; expected group/run"
        return
    if groups[other].get("data") != groups[name].get("data"):
        yield f"{at}: {entry} is scored on {groups[other].get('data')}, this group on {groups[name].get('data')}"
    if absent := [seed for seed in _items(groups[name].get("seeds")) if seed not in _items(groups[other].get("seeds"))]:
        yield f"{at}: {entry} has no seeds {absent}, so nothing can be paired"


def _rows(node: Any) -> dict[str, dict[str, Any]]:
    """The entries of a mapping that are mappings themselves; none where it is no mapping."""
    return {key: row for key, row in node.items() if isinstance(row, dict)} if isinstance(node, dict) else {}


def _items(node: Any) -> list[Any]:
    return node if isinstance(node, list) else []


def _known(names: dict[str, Any], name: str, what: str) -> None:
    if name not in names:
        raise ConfigError(
            [f"params.yaml: no {what} is called {name!r}{suggest(name, names)} (there are: {', '.join(names)})"]
        )


def suggest(name: Any, names: Any) -> str:
    close = difflib.get_close_matches(str(name), list(names), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def kind_of(value: Any) -> str:
    kinds = {str: "text", bool: "true/false", int: "whole number", float: "number", dict: "mapping", tuple: "list"}
    return (
        "nothing"
        if value is None
        else kinds.get(type(value), "list" if isinstance(value, list) else type(value).__name__)
    )


KINDS: dict[str, type[Part]] = {  # by the value of `protocol` or `model`, or a tag, which pydantic puts into a location
    "continuumlm": ContinuumProtocol, "standard": StandardProtocol, "standard_shared": SharedVocabularyProtocol,
    "discrete": DiscreteRun, "continuous": ContinuousRun, "fused": FusedRun, "shared": SharedRun,
    "continuous_variant": ContinuousVariantRun, "transformer": TransformerRun, "diffeqformer": DiffEqFormerRun,
    "model_sizes": ModelSizes, "form_sizes": FormSizes,
}  # fmt: skip
SECTIONS: dict[str, type[Part]] = KINDS | {
    "corpora": Corpus, "ngram": Ngram, "sizes": FormSizes, "train": Train, "select": Select, "bench": Bench,
    "gradients": Gradients, "solver_swap": SolverSwap, "decoding": Decoding,
    "clustering": Clustering, "trained_clustering": TrainedClustering, "spectra": Spectra,
    "sensitivity": Sensitivity, "downstream": Downstream,
}  # fmt: skip


def explain(item: Any, raw: Any) -> str:
    """One problem in our words: key = value (kind), expectation; hint."""
    location = _location(item["loc"], raw)
    key = ".".join(map(str, location)) or "the file"
    value, kind = item.get("input"), item["type"]
    if kind == "extra_forbidden":
        known = _fields_beside(item["loc"])
        return f"{key}: unknown key{suggest(location[-1], known)}"
    if kind == "missing":
        return f"{key}: missing; every key that can move a number must be given"
    if kind == "value_error":
        return f"{key}: {item['ctx']['error']}"
    shown = json.dumps(value, default=str) if not isinstance(value, dict | tuple) else "..."
    message = expectation(item)
    hint = ""
    if isinstance(value, str) and kind in {"int_type", "float_type", "int_parsing", "float_parsing"}:
        hint = "; remove the quotes" if _is_number(value) else ""
    return f"{key} = {shown} ({kind_of(value)}), {message}{hint}"


def expectation(item: Any) -> str:
    context, kind = item.get("ctx") or {}, item["type"]
    bounds = {"greater_than": ">", "greater_than_equal": ">=", "less_than": "<", "less_than_equal": "<="}
    limits = {"greater_than": "gt", "greater_than_equal": "ge", "less_than": "lt", "less_than_equal": "le"}
    if kind in bounds:
        return f"expected a number {bounds[kind]} {context[limits[kind]]}"
    names = {
        "int_type": "expected a whole number", "int_from_float": "expected a whole number",
        "float_type": "expected a number", "finite_number": "expected a finite number",
        "string_type": "expected text", "dict_type": "expected a mapping", "model_type": "expected a mapping",
        "tuple_type": "expected a list", "too_short": "expected at least one entry",
    }  # fmt: skip
    if kind in names:
        return names[kind]
    if kind in {"literal_error", "union_tag_invalid"}:
        return f"expected one of {context.get('expected') or context.get('expected_tags')}"
    if kind == "union_tag_not_found":
        return f"needs the key {context.get('discriminator')}"
    return str(item["msg"])


def _location(loc: tuple[Any, ...], raw: Any) -> list[Any]:
    """The path in the file: pydantic's location without the union tags it inserts."""
    path: list[Any] = []
    node = raw
    for part in loc:
        if part in KINDS and not (isinstance(node, dict) and part in node):
            continue
        path.append(part)
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            node = None
    return path


def _fields_beside(loc: tuple[Any, ...]) -> list[str]:
    """Keys allowed in the mapping that holds an unknown key."""
    part = next((SECTIONS[name] for name in reversed(loc[:-1]) if name in SECTIONS), None)
    if part is None:
        part = Group if loc[0] == "groups" and len(loc) == 3 else Study
    return list(part.model_fields)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
