"""Verify a published run by training it again, and score stored weights again."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from depthtime import paths
from depthtime.config import RunConfig, Study
from depthtime.errors import RecordError
from depthtime.records import differences, read_json

if TYPE_CHECKING:
    from depthtime.data.dataset import Dataset
    from depthtime.evaluate.perplexity import Score

MEASURED = ("curve", "final", "best", "test", "train", "rehearsal", "files")  # may differ on another processor


def verify(study: Study, group: str, run: str, seed: int) -> tuple[list[str], bool]:
    """Train a run again in a scratch folder and compare with its record.

    Equal to the last digit is expected on the same kind of processor; elsewhere the final perplexity must lie within
    three standard deviations over the published seeds. Returns lines for a person, and whether the run agrees.
    """
    from depthtime.progress import TrainingDisplay
    from depthtime.train.run import resolve, train_run

    name = f"{group}/{run}/{seed}"
    config = resolve(study, group, run)
    published = read_json(paths.record(group, run, seed))
    if published["digest"] != config.digest:
        raise RecordError(f"{name}: params.yaml is not what the published run was made with; nothing to verify")
    with tempfile.TemporaryDirectory(prefix="depthtime-verify-") as folder:
        with TrainingDisplay(f"verify {name}", config.train.max_steps) as display:
            again = train_run(study, group, run, seed, observers=(display,), root=Path(folder))
        here = read_json(Path(folder) / paths.provenance(group, run, seed))
    lines = [
        f"{name}: trained again in {here['elapsed_s']:.0f} s on {here['cpu']}",
        f"final validation perplexity {_shown(again)} (published {_shown(published)})",
    ]
    different = list(differences(published, again))
    if not different:
        return [*lines, "every number of the record is equal to the last digit"], True
    there = _read_provenance(group, run, seed)
    same_machine = there is not None and all(there.get(key) == here[key] for key in ("cpu", "device", "packages"))
    lines.append(f"{len(different)} numbers differ, first {different[0]}")
    if same_machine:
        return [*lines, "the published run was made on this kind of machine: it does not reproduce"], False
    if computed := [line for line in different if not line.startswith(MEASURED)]:
        return [*lines, f"and no processor explains that {computed[0]}"], False
    agrees, what = _within_seeds(study, published, again)
    return [*lines, f"published on {there['cpu'] if there else 'an unknown processor'}; {what}"], agrees


def _within_seeds(study: Study, published: dict[str, Any], again: dict[str, Any]) -> tuple[bool, str]:
    """Whether the new final value lies where the published seeds spread."""
    group, run = published["group"], published["run"]
    records = [read_json(paths.record(group, run, seed)) for seed in study.groups[group].seeds]
    finals = [record["final"]["perplexity"] for record in records]
    new = again["final"]["perplexity"]
    if None in finals or new is None or len(finals) < 2:
        return False, "the spread over seeds cannot tell whether this agrees (one seed, or a diverged one)"
    mean, spread = statistics.fmean(finals), statistics.stdev(finals)
    inside = abs(new - mean) <= 3 * spread
    return inside, (
        f"the new value lies {'inside' if inside else 'outside'} mean +- 3 sd of the published seeds "
        f"({mean:.2f} +- {3 * spread:.2f})"
    )


def evaluate_run(study: Study, group: str, run: str, seed: int, weights: Path | None) -> Iterator[str]:
    """Score stored weights on the validation part; tells whether they give the record's final value.

    Raises: RecordError when the weights are missing or of another model.
    """
    from depthtime.data.dataset import load_dataset
    from depthtime.train.run import resolve

    config = resolve(study, group, run)
    dataset = load_dataset(study, config.group.data)
    result = score_weights(config, dataset, seed, weights or paths.run_folder(group, run, seed) / "weights.safetensors")
    yield f"validation perplexity {result.perplexity:.4f} over {result.num_scored} tokens"
    published = read_json(paths.record(group, run, seed))["final"]["nll_nats"]
    if weights is None and published is not None:
        same = math.isclose(result.nll_nats, published, rel_tol=1e-6)
        yield f"record: {math.exp(published):.4f}; {'equal' if same else 'NOT equal'}"


def score_weights(config: RunConfig, dataset: Dataset, seed: int, weights: Path) -> Score:
    """Score a weights file on the whole validation part of its dataset."""
    from depthtime.evaluate.network import score_network
    from depthtime.train.checkpoint import load_weights
    from depthtime.train.setup import build_for

    model = build_for(config, dataset, seed)
    load_weights(weights, model)
    return score_network(model, dataset.valid, config.train.eval_batch_size)


def _read_provenance(group: str, run: str, seed: int) -> dict[str, Any] | None:
    path = paths.provenance(group, run, seed)
    return read_json(path) if path.exists() else None


def _shown(record: dict[str, Any]) -> str:
    value = record["final"]["perplexity"]
    return record["status"] if value is None else f"{value:.4f}"
