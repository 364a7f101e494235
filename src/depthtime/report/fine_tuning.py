"""Runs that start from stored weights: what fine-tuning to another depth costs, all weights or low-rank adapters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from depthtime.config import ConvertedRun, DiffEqFormerRun, FineTunedRun, StackRun, Study, run_address
from depthtime.report import wording as say
from depthtime.report.frame import Row, Table, columns, equal_in_all, files, seeds
from depthtime.report.sources import Sources

START = {"converted": "DiffEqFormer", "pretrained": "GPT"}


@dataclass(frozen=True)
class Tuned:
    """A run of a group that fine-tunes. `layers` now, `trained_layers` of what it starts from (its own, from scratch).

    baseline: the transformer that is fine-tuned at its own depth in the same way, and that the run is held against.
    """

    group: str
    run: str
    kind: str
    adapt: str | None
    init: str | None
    layers: int
    trained_layers: int
    baseline: str | None
    row: dict[str, Any]

    @property
    def gap(self) -> float | None:
        """Best perplexity beyond the baseline's in percent, seed by seed, then averaged."""
        return self.row["gap"]


def tuned_runs(sources: Sources) -> Iterator[Tuned]:
    """Every run of every group that fine-tunes, in the order of params.yaml."""
    for group in sources.fine_tuning_groups:
        runs, analysed = sources.study.groups[group].runs, sources.analyses[group]["runs"]
        own = {run.adapt: name for name, run in runs.items() if isinstance(run, FineTunedRun) and _is_stack(run)}
        for name, run in runs.items():
            is_tuned = isinstance(run, FineTunedRun)
            adapt = run.adapt if isinstance(run, FineTunedRun) else None
            baseline = own.get(adapt or "full")
            row = {**analysed[name], "gap": _gap(analysed, name, baseline)}
            yield Tuned(
                group=group,
                run=name,
                kind=run.model if is_tuned else "diffeq" if isinstance(run, DiffEqFormerRun) else "gpt",
                adapt=adapt,
                init=run.lora_init if isinstance(run, FineTunedRun) else None,
                layers=_layers(run),
                trained_layers=_trained_layers(sources.study, run),
                baseline=None if baseline == name else baseline,
                row=row,
            )


def fine_tuning(sources: Sources) -> Table:
    """One row a run: where it started, what was trained, best and last perplexity, beside the published gaps."""
    numbers: list[Row] = []
    words: list[Row] = []
    for tuned in tuned_runs(sources):
        row, analysis = tuned.row, sources.analyses[tuned.group]
        trained = row["parameters"]["total"]
        total = trained + row["parameters"].get("frozen", 0)
        published, steps = published_gaps(sources, tuned), list(row["best"]["steps"].values())
        start = START.get(tuned.kind, "random")
        equal = equal_in_all(analysis)
        numbers.append(
            {"group": tuned.group, "run": tuned.run, "start": start, "adapt": tuned.adapt, "init": tuned.init}
            | {"layers": tuned.layers, "trained_layers": tuned.trained_layers, "trained": trained, "parameters": total}
            | columns(row["best"], "best_") | {"best_step": steps} | columns(row["final"], "final_")
            | columns(row["test"], "test_") | {"against": tuned.baseline, "gap_percent": tuned.gap}
            | {"gap_percent_published": published, "seeds": len(analysis["seeds"]), "equal": equal}
        )  # fmt: skip
        at = f" (step {say.count(steps[0])})" if len(steps) == 1 and steps[0] is not None else ""
        words.append(
            {
                "run": f"{tuned.group}/{tuned.run}",
                "starts from": start if start == "random" else f"{start}, {tuned.trained_layers} layers",
                "layers": str(tuned.layers),
                "trained": _how(tuned),
                "trained parameters": say.count(trained),
                "of": say.count(total),
                "best": f"{say.interval(row['best'])}{at}",
                "last": say.interval(row["final"]),
                "test": say.interval(row["test"]),
                "gap to GPT": _percent(tuned.gap),
                "published gaps": ", ".join(_percent(gap) for gap in published) or say.NONE,
                "seeds": seeds(analysis, row),
                "held equal": equal,
            }
        )
    group = next(iter(sources.fine_tuning_groups), sources.main_group)
    data = sources.study.groups[group].data
    n = len(sources.analyses[group]["seeds"])
    caption = (
        f"**Fine-tuned to another depth, on {data}.** Validation perplexity, best and last, and test perplexity of the "
        f"best; n = {n} seed{'s, mean and t interval' if n > 1 else ', so no gap here is decided'}. {_starts(sources)}"
        "A DiffEqFormer is stored as layers W(k/L'), which are then trained on their own: all weights, or embeddings "
        "and low-rank adapters (starts: faithful, both factors near 0; standard, one). Gap to GPT: best perplexity "
        "beyond that of the transformer fine-tuned at its own depth in the same way (random starts: against all "
        "weights), in percent. "
        f"Published gaps: last perplexity at the same multiple of the trained depth, {_settings(sources)}, one seed."
    )
    return Table(numbers, words, caption, files(sources, sources.fine_tuning_groups or [group]))


def published_gaps(sources: Sources, tuned: Tuned) -> list[float]:
    """By how many percent the published run of this kind lay above GPT fine-tuned in the same way, by setting."""
    if tuned.baseline is None or tuned.kind == "diffeq" or tuned.init == "standard":
        return []
    ours = sources.published.fine_tuned(tuned.kind, tuned.adapt or "full", tuned.layers / tuned.trained_layers)
    theirs = sources.published.fine_tuned("pretrained", tuned.adapt or "full", 1)
    return [100 * (a / b - 1) for a, b in zip(ours, theirs, strict=True)] if ours else []


def _gap(runs: dict[str, Any], name: str, baseline: str | None) -> float | None:
    if baseline is None or baseline == name:
        return None
    ours, theirs = (runs[run]["best"]["perplexity"] for run in (name, baseline))
    pairs = [(ours[seed], theirs[seed]) for seed in ours]
    return None if any(None in pair for pair in pairs) else sum(100 * (a / b - 1) for a, b in pairs) / len(pairs)


def _layers(run: Any) -> int:
    return int(run.num_steps if isinstance(run, ConvertedRun | DiffEqFormerRun) else run.layers)


def _trained_layers(study: Study, run: Any) -> int:
    """Layers of the model that a run starts from."""
    if not isinstance(run, FineTunedRun):
        return _layers(run)
    group, source, _ = run_address(run.source)
    return _layers(study.groups[group].runs[source])


def _is_stack(run: Any) -> bool:
    return isinstance(run, StackRun)


def _how(tuned: Tuned) -> str:
    if tuned.adapt is None:
        return "everything, from scratch"
    return "everything" if tuned.adapt == "full" else f"adapters, {tuned.init} start"


def _percent(gap: float | None) -> str:
    return say.NONE if gap is None else f"{say.number(gap, 1, sign=True)} %"


def _starts(sources: Sources) -> str:
    """What runs start from, with its perplexity on its own corpus."""
    words = []
    for name in sources.fine_tuning_starts:
        group, run, seed = run_address(name)
        value = sources.analyses[group]["runs"][run]["final"]["perplexity"][str(seed)]
        words.append(f"`{name}` ({sources.study.groups[group].data}, perplexity {say.number(value)})")
    return f"They start from {say.joined(words)}. " if words else ""


def _settings(sources: Sources) -> str:
    tuned = sources.published.others["diffeqformer"]["fine_tuning"]
    return f"{tuned['place']}; {say.joined(name.replace('_', ' ') for name in tuned['perplexity'])}"
