"""What tables, figures and README values are made of: analyses, n-gram records, the bench record, published values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from depthtime import paths
from depthtime.claims import MEASURES
from depthtime.config import DiffEqFormerRun, Integrated, SharedRun, Study, TransformerRun
from depthtime.errors import RecordError
from depthtime.records import read_json
from depthtime.report.published import Published, load_published
from depthtime.report.wording import TIMES


@dataclass(frozen=True)
class Sources:
    """Everything the report reads, read once.

    analyses: by group; references: by dataset, entries in record order; bench: the bench record;
    measured: records of the stages that only measure, by name.
    """

    study: Study
    published: Published
    analyses: dict[str, dict[str, Any]]
    references: dict[str, list[dict[str, Any]]]
    bench: dict[str, Any]
    measured: dict[str, dict[str, Any]]

    @property
    def main_group(self) -> str:
        """The group whose numbers were published, or else the first of params.yaml."""
        return self.published.group or next(iter(self.study.groups))

    @property
    def compared_groups(self) -> list[str]:
        """The compared groups of the main group's source."""
        return self.groups_of(self.study.groups[self.main_group].source)

    def groups_of(self, source: str) -> list[str]:
        """Groups for the claims of a source, but those that only serve to choose a learning rate."""
        serving = {row.select.group for row in self.study.groups.values() if row.select is not None}
        return [name for name, row in self.study.groups.items() if row.source == source and name not in serving]

    def pairs(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(group, pair) of every comparison inside a group, in the order of params.yaml."""
        for group in self.compared_groups:
            if self.study.groups[group].against:
                continue
            for pair in self.analyses[group]["pairs"]:
                yield group, pair

    def label(self, group: str, run: str) -> str:
        """A run's name with its depth: `discrete (3 blocks)`, `shared (1 block x 16)`, `ode (rk4 x 4)`."""
        row = self.study.groups[group].runs[run]
        if isinstance(row, Integrated | DiffEqFormerRun):
            return f"{run} ({row.solver} {TIMES} {row.num_steps})"
        if isinstance(row, SharedRun) or (isinstance(row, TransformerRun) and row.shares_weights):
            return f"{run} (1 block {TIMES} {row.layers})"
        return f"{run} ({row.layers} block{'s' if row.layers > 1 else ''})"

    def cost_ratios(self) -> list[dict[str, Any]]:
        """Cost of each later run of the bench as a multiple of the first: run, name, what, ratio, published."""
        base, *later = self.study.bench.runs
        times = {(row["run"], row["threads"]): row["median_step_s"] for row in self.bench["rows"]}
        rows = []
        for run in later:
            a, b = self.analysed_run(base), self.analysed_run(run)
            counted = {"parameters": ("parameters", a["parameters"]["total"], b["parameters"]["total"])}
            for name, what in (("nfe_forward", "block evaluations"), ("flops_per_token_forward", "FLOPs a token")):
                counted[name] = (what, a["cost"][name], b["cost"][name])
            for n in self.study.bench.threads:
                what = f"time a step, {n} thread{'s' if n > 1 else ''}"
                counted[f"step_{n}_threads"] = (what, times[base, n], times[run, n])
            published_pair = [f"{self.published.group}/{name}" for name in self.published.step_s]
            for name, (what, x, y) in counted.items():
                stated = self.published.ratio if name.startswith("step") and [base, run] == published_pair else None
                rows.append({"run": run, "name": name, "what": what, "ratio": y / x, "published": stated})
        return rows

    def analysed_run(self, name: str) -> dict[str, Any]:
        """The analysis of a run given as group/run."""
        group, _, run = name.partition("/")
        return dict(self.analyses[group]["runs"][run])


def load_sources(study: Study) -> Sources:
    """Read all result files of a study.

    Raises: RecordError when one is missing, damaged or not of the study's present groups and runs.
    """
    analyses = {group: _analysis(study, group) for group in study.groups}
    references = {dataset: _references(dataset) for dataset in study.datasets}
    bench = read_json(paths.measured("bench"))
    wanted = {(run, threads) for run in study.bench.runs for threads in study.bench.threads}
    wanted |= {(run, 1) for run in study.bench.frontier}
    measured = {(row["run"], row["threads"]) for row in bench["rows"]}
    if not wanted <= measured:
        raise RecordError(
            f"{paths.measured('bench')}: has no times for {sorted(wanted - measured)}; make it again: `snakemake bench`"
        )
    records = {name: read_json(paths.measured(name)) for name in MEASURES}
    return Sources(study, load_published(study), analyses, references, bench, records)


def _analysis(study: Study, group: str) -> dict[str, Any]:
    path = paths.analysis(group)
    analysis = read_json(path)
    row = study.groups[group]
    if analysis.get("run_order") != list(row.runs) or analysis.get("seeds") != list(row.seeds):
        raise RecordError(
            f"{path}: is of other runs or seeds than params.yaml names; make it again: `snakemake {path}`"
        )
    return analysis


def _references(dataset: str) -> list[dict[str, Any]]:
    """References of one dataset: name, label, valid and test scores, alpha, discounts (None where without)."""
    path = paths.ngram_record(dataset)
    rows = read_json(path).get("references")
    if not rows or not all({"name", "perplexity", "num_scored", "test"} <= row.keys() for row in rows):
        raise RecordError(f"{path}: holds no complete list of references; make it again: `snakemake --forcerun {path}`")
    return [
        {
            "name": row["name"],
            "label": _reference_label(row),
            "valid": {key: row[key] for key in ("perplexity", "num_scored")},
            "test": row["test"],
            "alpha": row.get("alpha"),
            "discounts": [f"{d:.6g}" for d in row.get("discounts") or []] or None,
        }
        for row in rows
    ]


def _reference_label(row: dict[str, Any]) -> str:
    """`Kneser-Ney, order 3`, `bigram, add 0.01`, `unigram`; a name we do not know stays as it is."""
    name = row["name"]
    if name.startswith("kneser_ney_"):
        return f"Kneser-Ney, order {name.removeprefix('kneser_ney_')}"
    if name.startswith("bigram_add_"):
        return f"bigram, add {row['alpha']:g}" + (" (tuned)" if name.endswith("tuned") else "")
    if name == "unigram" and row.get("alpha"):
        return f"unigram, add {row['alpha']:g}"
    return str(name)
