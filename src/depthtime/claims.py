"""The only reader of claims.yaml: claims and the rules that judge them, or all mistakes of the file at once.

A rule is a list of checks. Each check computes one statistic with an interval and compares the interval with
two regions: `holds` and `fails`; the rest is unclear. `verdict` joins the checks, alike for every claim.

Statistics (the whole vocabulary)
    published_gap   (ours - published) / published of a run's validation perplexity at `step`, by seed
    relative_gap    (run - baseline) / baseline of the perplexities at `step`, paired by seed
    improvement     perplexity of an n-gram reference over that of a run at `step`, by seed
    reference_gap   (ours - published) / published of an n-gram reference; a count, so low = high
    cost_ratio      step time of one bench entry over another's (other run or threads), by interleaved round
    record_field    a number in a JSON record, or its ratio to the same field of `baseline_record`; low = high
    quotient        numerator / denominator of two published numbers; low = high
Intervals: `t` is the Student interval over seeds at the file's `confidence`; `range` is the smallest
to the largest seed; `median` (cost_ratio only) is the order-statistic interval of the median over rounds, the
narrowest symmetric one that covers at least `confidence`.
Regions: interval_above x, interval_below x (strict), interval_within [a, b] (both ends belong to it),
interval_outside [a, b] (wholly on one side), interval_contains x.
No torch and no records here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from depthtime.config import NAME, Part, Study, as_tuples, expectation, kind_of, read_yaml, suggest
from depthtime.errors import ConfigError

Number = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Step = Annotated[int, Field(ge=1)]
Text = Annotated[str, Field(min_length=1)]
Status = Literal["holds", "fails", "unclear"]
Verdict = Literal["reproduced", "partly", "not_reproduced", "ill_posed", "inconclusive", "untested"]


class Region(Part):
    """One condition on an interval; exactly one key is given."""

    interval_above: Number | None = None
    interval_below: Number | None = None
    interval_within: tuple[Number, Number] | None = None
    interval_outside: tuple[Number, Number] | None = None
    interval_contains: Number | None = None

    @model_validator(mode="after")
    def _one_condition(self) -> Region:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            names = ", ".join(type(self).model_fields)
            raise ValueError(f"expected exactly one of {names}; found {len(given)}")
        limits = self.interval_within or self.interval_outside
        if limits and limits[0] > limits[1]:
            raise ValueError(f"expected [low, high] with low <= high, found {list(limits)}")
        return self

    def matches(self, low: float, high: float) -> bool:
        """Whether the interval [low, high] lies as asked."""
        if self.interval_above is not None:
            return low > self.interval_above
        if self.interval_below is not None:
            return high < self.interval_below
        if self.interval_within is not None:
            return self.interval_within[0] <= low and high <= self.interval_within[1]
        if self.interval_outside is not None:
            return high < self.interval_outside[0] or low > self.interval_outside[1]
        return self.interval_contains is not None and low <= self.interval_contains <= high


class Check(Part):
    """What all checks share. An `essential` check that fails decides the claim."""

    essential: bool = False
    holds: Region
    fails: Region

    def status(self, low: float, high: float) -> Status:
        """Compare an interval with the two regions; matching both or neither is unclear."""
        held, failed = self.holds.matches(low, high), self.fails.matches(low, high)
        return "unclear" if held == failed else "holds" if held else "fails"


class PublishedGap(Check):
    statistic: Literal["published_gap"]
    interval: Literal["t", "range"] = "t"
    group: str
    run: str
    step: Step
    published: Positive


class RelativeGap(Check):
    statistic: Literal["relative_gap"]
    interval: Literal["t", "range"] = "t"
    group: str
    run: str
    baseline: str
    baseline_group: str | None = None  # where the baseline is a run of another group with the same seeds
    step: Step


class Improvement(Check):
    statistic: Literal["improvement"]
    interval: Literal["t", "range"] = "t"
    dataset: str
    reference: str
    group: str
    run: str
    step: Step


class ReferenceGap(Check):
    statistic: Literal["reference_gap"]
    dataset: str
    reference: str
    published: Positive


class CostRatio(Check):
    statistic: Literal["cost_ratio"]
    interval: Literal["median"] = "median"
    run: str
    baseline: str
    threads: Step
    baseline_threads: Step


class RecordField(Check):
    statistic: Literal["record_field"]
    record: Text
    baseline_record: Text | None = None
    field: Text


class Quotient(Check):
    statistic: Literal["quotient"]
    numerator: Number
    denominator: Positive


AnyCheck = Annotated[
    PublishedGap | RelativeGap | Improvement | ReferenceGap | CostRatio | RecordField | Quotient,
    Field(discriminator="statistic"),
]
MEASURES = (
    "gradients",
    "solver_swap",
    "decoding",
    "clustering",
    "trained_clustering",
    "spectra",
    "sensitivity",
    "downstream",
)  # stages that only measure
_KINDS: dict[str, type[Check]] = {
    "published_gap": PublishedGap, "relative_gap": RelativeGap, "improvement": Improvement,
    "reference_gap": ReferenceGap, "cost_ratio": CostRatio, "record_field": RecordField, "quotient": Quotient,
}  # fmt: skip


class Rule(Part):
    """`ill_posed` is looked at first: if one of its checks holds, the claim has no answer as stated."""

    checks: Annotated[tuple[AnyCheck, ...], Field(min_length=1)]
    ill_posed: tuple[AnyCheck, ...] = ()


class HeldEqual(Part):
    equal: tuple[Text, ...]
    not_equal: tuple[Text, ...]


class Claim(Part):
    """One statement of a source. `judged_by` names groups or stages; null: not yet, `note` says what will."""

    source: str
    place: Text
    kind: Literal["quantitative", "qualitative", "implementation"]
    statement: Text
    published: dict[str, Number | str | bool]
    metric: Text
    scale: Text
    held_equal: HeldEqual
    seeds: dict[str, Annotated[tuple[int, ...], Field(min_length=1)]]
    judged_by: Annotated[tuple[str, ...], Field(min_length=1)] | None
    rule: Rule | None
    note: Text | None = None

    @model_validator(mode="after")
    def _complete(self) -> Claim:
        if self.judged_by is None and self.note is None:
            raise ValueError("judged_by is null: `note` must say which experiment will judge the claim")
        if self.rule is None and self.judged_by is not None:
            raise ValueError("judged_by is given but rule is null: a judged claim needs a rule")
        return self


class Source(Part):
    title: Text
    examined: Text


class Ledger(Part):
    confidence: Annotated[float, Field(gt=0.5, lt=1)]
    minimum_seeds: Annotated[int, Field(ge=3)]
    correction: Literal["holm_reported_beside"]
    sources: Annotated[dict[str, Source], Field(min_length=1)]
    claims: Annotated[dict[str, Claim], Field(min_length=1)]


def verdict(rule: Rule | None, checks: Sequence[Status | None], ill_posed: Sequence[Status | None] = ()) -> Verdict:
    """Join the statuses of a rule's checks (None: record or seed missing), in the order of the rule.

    ill_posed       an ill_posed check holds
    untested        no rule, or a check could not be computed
    not_reproduced  an essential check fails, or all checks fail
    reproduced      all checks hold
    partly          all essential checks hold, and among all checks at least one holds and one fails
    inconclusive    the rest
    """
    if rule is None:
        return "untested"
    if len(checks) != len(rule.checks) or len(ill_posed) != len(rule.ill_posed):
        raise ValueError("one status for each check of the rule is needed")
    if "holds" in ill_posed:
        return "ill_posed"
    if None in checks or None in ill_posed:
        return "untested"
    essential = [status for check, status in zip(rule.checks, checks, strict=True) if check.essential]
    if "fails" in essential or set(checks) == {"fails"}:
        return "not_reproduced"
    if set(checks) == {"holds"}:
        return "reproduced"
    if set(essential) <= {"holds"} and {"holds", "fails"} <= set(checks):
        return "partly"
    return "inconclusive"


def load_claims(path: Path | str = "claims.yaml", study: Study | None = None) -> Ledger:
    """Read and check claims.yaml; with a study, also that judged claims name its groups, runs and steps.

    Raises: ConfigError with every problem found, one line each: file, claim, key, value, expectation, hint.
    """
    raw = read_yaml(path)
    if not isinstance(raw, dict):
        keys = ", ".join(Ledger.model_fields)
        raise ConfigError([f"{path}: holds {kind_of(raw)}, expected a mapping with {keys}"])
    try:
        ledger = Ledger.model_validate(as_tuples(raw))
    except ValidationError as error:
        problems = [f"{path}: {_explain(item)}" for item in error.errors(include_url=False)]
        raise ConfigError(list(dict.fromkeys(problems))) from None
    problems = [f"{path}: {line}" for line in _misnamed(ledger)]
    if study is not None:
        problems += [f"{path}: {line}" for line in _dangling(ledger, study)]
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return ledger


def all_checks(claim: Claim) -> tuple[AnyCheck, ...]:
    """Checks of the rule, those of ill_posed included."""
    return () if claim.rule is None else claim.rule.checks + claim.rule.ill_posed


def _misnamed(ledger: Ledger) -> Iterator[str]:
    for name, claim in ledger.claims.items():
        at = f"claims.{name}"
        if not NAME.fullmatch(name) or name != name.lower():
            yield f"{at}: an id takes small letters, digits and '_', and starts with a letter"
        if claim.source not in ledger.sources:
            yield f"{at}.source = {claim.source!r}: no such source{suggest(claim.source, ledger.sources)}"
        elif not name.startswith(f"{claim.source}_"):
            yield f"{at}: an id starts with its source, expected {claim.source}_..."
        needed = {group for check in all_checks(claim) if (group := getattr(check, "group", None))}
        for group in sorted(needed - set(claim.seeds)):
            yield f"{at}.seeds: no seeds for group {group!r}, which a check reads"
        for group, seeds in claim.seeds.items():
            if len(set(seeds)) < ledger.minimum_seeds:
                least = f"expected at least {ledger.minimum_seeds} different seeds"
                yield f"{at}.seeds.{group} = {list(seeds)}: {least}"


def _dangling(ledger: Ledger, study: Study) -> Iterator[str]:
    """What a judged claim names must be in params.yaml."""
    stages = {*study.groups, "ngram", "bench", "fetch", "prepare", "arithmetic", *MEASURES}
    for name, claim in ledger.claims.items():
        if claim.judged_by is None:
            continue
        at = f"claims.{name}"
        for stage in claim.judged_by:
            if stage not in stages:
                yield f"{at}.judged_by: {stage!r} is not a group or stage{suggest(stage, stages)}"
        for group, seeds in claim.seeds.items():
            trained = study.groups[group].seeds if group in study.groups else seeds
            if seeds != trained:
                yield f"{at}.seeds.{group} = {list(seeds)}: params.yaml trains {list(trained)}"
        for check in all_checks(claim):
            yield from (f"{at}.rule, {check.statistic}: {line}" for line in _dangling_check(check, study))


def _dangling_check(check: AnyCheck, study: Study) -> Iterator[str]:
    if isinstance(check, CostRatio):
        for entry in (check.run, check.baseline):
            if entry not in study.bench.runs:
                yield f"{entry!r} is not in bench.runs{suggest(entry, study.bench.runs)}"
        for threads in (check.threads, check.baseline_threads):
            if threads not in study.bench.threads:
                yield f"threads = {threads} is not in bench.threads {list(study.bench.threads)}"
    if isinstance(check, Improvement | ReferenceGap) and check.dataset not in study.datasets:
        yield f"dataset = {check.dataset!r}: no such dataset{suggest(check.dataset, study.datasets)}"
    if not isinstance(check, PublishedGap | RelativeGap | Improvement):
        return
    runs = [(check.group, check.run)]
    if isinstance(check, RelativeGap):
        runs.append((check.baseline_group or check.group, check.baseline))
    for group, run in runs:
        if group not in study.groups:
            yield f"group = {group!r}: no such group{suggest(group, study.groups)}"
            continue
        row = study.groups[group]
        if run not in row.runs:
            yield f"{run!r} is not a run of group {group}{suggest(run, row.runs)}"
        if check.step > row.train.max_steps or check.step % row.train.eval_every:
            every = row.train.eval_every
            yield f"step = {check.step}: group {group} is not evaluated there (every {every} steps)"


def _explain(item: Any) -> str:
    """One problem in our words: claim and key = value (kind), expectation; hint."""
    location = [part for part in item["loc"] if part not in _KINDS]
    key, value, kind = ".".join(map(str, location)) or "the file", item.get("input"), item["type"]
    if kind == "extra_forbidden":
        return f"{key}: unknown key{suggest(location[-1], _fields_beside(item['loc']))}"
    if kind == "missing":
        return f"{key}: missing"
    if kind == "value_error":
        return f"{key}: {item['ctx']['error']}"
    shown = json.dumps(value, default=str) if not isinstance(value, dict | tuple) else "..."
    return f"{key} = {shown} ({kind_of(value)}), {expectation(item)}"


def _fields_beside(loc: tuple[Any, ...]) -> list[str]:
    """Keys allowed in the mapping that holds an unknown key."""
    places: dict[Any, type[Part]] = {
        "holds": Region, "fails": Region, "rule": Rule, "held_equal": HeldEqual, **_KINDS,
    }  # fmt: skip
    for part in reversed(loc[:-1]):
        if part in places:
            return list(places[part].model_fields)
    parts = {1: Ledger, 3: Source if loc[0] == "sources" else Claim}
    return list(parts[len(loc)].model_fields) if len(loc) in parts else []
