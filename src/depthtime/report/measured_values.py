"""Values of what was measured, for sentences, by the name of the measurement: clustering.*, decoding.*, speed.*, ..."""

from __future__ import annotations

from typing import Any

from depthtime.report import wording as say
from depthtime.report.clustering import clustering_values
from depthtime.report.downstream import downstream_values
from depthtime.report.sensitivity import sensitivity_values
from depthtime.report.sources import Sources
from depthtime.report.spectra import spectra_values
from depthtime.report.trained_clustering import trained_clustering_values


def measured_values(sources: Sources) -> dict[str, str]:
    """Names and texts."""
    return {
        **clustering_values(sources),
        **_decoding(sources),
        **downstream_values(sources),
        **_gradients(sources.measured["gradients"]),
        **_solver_swap(sources.measured["solver_swap"]),
        **spectra_values(sources),
        **_speed(sources.bench["speed"]),
        **trained_clustering_values(sources),
        **sensitivity_values(sources),
    }


def _decoding(sources: Sources) -> dict[str, str]:
    found = {}
    for name in sources.study.decoding.runs:
        run = name.split("/")[1]
        row = sources.measured["decoding"][run]
        found[f"decoding.{run}.difference"] = say.small(row["max_logit_difference"])
        found[f"decoding.{run}.difference_float32"] = say.small(row["max_logit_difference_float32"])
        for key in ("speed", "speed_batch"):
            found[f"decoding.{run}.{key}.texts"] = str(row[key]["texts"])
            for prefix in sources.study.decoding.prefixes:
                gain = 1 / row[key][f"prefix_{prefix}"]["ratio"]
                found[f"decoding.{run}.{key}.{prefix}_gain"] = say.number(gain, 0)
    return found


def _gradients(record: dict[str, Any]) -> dict[str, str]:
    found = {}
    for method, cells in record.items():
        if not isinstance(cells, dict) or "memory_ratio_64_over_4" not in cells:
            continue
        ratio = cells["memory_ratio_64_over_4"]
        found[f"gradients.{method}.memory_ratio"] = say.NONE if ratio is None else say.number(ratio, 1)
        for steps in record["steps"]:
            cell = cells[f"steps_{steps}"]
            found[f"gradients.{method}.{steps}.error"] = say.small(cell["relative_error"])
            found[f"gradients.{method}.{steps}.memory_mib"] = say.number(cell["peak_saved_bytes"] / 2**20, 0)
    return found


def _solver_swap(record: dict[str, Any]) -> dict[str, str]:
    found = {"solver_swap.num_scored": say.count(record["num_scored"])}
    for name, ratio in record["perplexity_ratio"].items():
        text = say.NONE if ratio is None else f"{say.number(100 * (ratio - 1), 2, sign=True)} %"
        found[f"solver_swap.{name}.change"] = text
    for name, leak in record["leak"].items():
        for what in ("later_words", "other_sentences"):
            found[f"solver_swap.{name}.{what}"] = say.small(leak[what])
    return found


def _speed(record: dict[str, Any]) -> dict[str, str]:
    found = {f"speed.{name}": say.number(record[name], 2) for name in record["spread"]}
    both = record["side_by_side"]
    return found | ({} if both is None else {"speed.side_by_side": say.number(both["ratio"], 2)})
