"""Published numbers (published.yaml), shown only beside the group and corpus they were reported for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from depthtime.config import Study, read_yaml
from depthtime.errors import ConfigError
from depthtime.report import wording as say

PUBLISHED = Path("published.yaml")


@dataclass(frozen=True)
class Published:
    """Perplexities by run and step, by reference, and the cost of a step; empty where nothing applies.

    tasks: by test, accuracies in % of the two models that another source compares on it.
    """

    name: str
    group: str | None
    num_seeds: int
    by_step: dict[str, dict[int, float]]
    references: dict[str, float]
    step_s: dict[str, float]
    ratio: float | None
    others: dict[str, Any]  # by source: perplexities at larger sizes, shown beside ours on any corpus
    tasks: dict[str, list[float]]

    def perplexity(self, group: str, run: str, step: int) -> float | None:
        return self.by_step.get(run, {}).get(step) if group == self.group else None

    def gap_percent(self, group: str, first: str, second: str, step: int) -> float | None:
        """By how many percent the published `second` exceeds the published `first`."""
        a, b = self.perplexity(group, first, step), self.perplexity(group, second, step)
        return None if a is None or b is None else 100 * (b / a - 1)

    def gaps(self, source: str, group: str, run: str) -> list[float]:
        """By how many percent a baseline exceeded the source's model, by setting; empty for a run of ours alone."""
        rows = self.others[source]["perplexity"].get(group, {}).values()
        return [100 * (row[run] / row["diffeq"] - 1) for row in rows if run in row and run != "diffeq"]

    def gap_places(self, source: str, groups: list[str]) -> str:
        """The settings of `gaps` of these groups, in words."""
        rows = {group: row for group, row in self.others[source]["perplexity"].items() if group in groups}
        return "; ".join(
            f"{group}: {say.joined(name.replace('_', ' ') for name in row)}" for group, row in rows.items()
        )


def load_published(study: Study, path: Path = PUBLISHED) -> Published:
    """Read published.yaml; its numbers are kept only where the study has their group on their corpus.

    Raises: ConfigError when the file is missing, lacks a key, or lists unequal numbers of steps and values.
    """
    raw = read_yaml(path)
    group = _get(raw, path, "applies_to", "group")
    source = _get(raw, path, "applies_to", "corpus_source")
    name, num_seeds = _get(raw, path, "source", "name"), _get(raw, path, "source", "num_seeds")
    steps = _get(raw, path, "perplexity_by_step", "steps")
    by_step = {}
    for run, values in _get(raw, path, "perplexity_by_step", "runs").items():
        if len(values) != len(steps):
            at = f"perplexity_by_step.runs.{run}"
            raise ConfigError(
                [f"{path}: {at} has {len(values)} values, expected one for each of the {len(steps)} steps"]
            )
        by_step[run] = dict(zip(steps, values, strict=True))
    references = _get(raw, path, "references", "values")
    step_s, ratio = _get(raw, path, "cost", "step_s"), _get(raw, path, "cost", "ratio")
    others = {"diffeqformer": {"perplexity": _get(raw, path, "diffeqformer", "perplexity")}}
    tasks = _get(raw, path, "tasks", "accuracy")
    row = study.groups.get(group)
    if row is None or study.corpora[study.datasets[row.data].corpus].source != source:
        return Published(name, None, num_seeds, {}, {}, {}, None, others, {})
    return Published(name, group, num_seeds, by_step, references, step_s, ratio, others, tasks)


def _get(raw: Any, path: Path, *keys: str) -> Any:
    node = raw
    for index, key in enumerate(keys):
        if not isinstance(node, dict) or key not in node:
            raise ConfigError([f"{path}: {'.'.join(keys[: index + 1])}: missing; restore it from the repository"])
        node = node[key]
    return node
