"""Tables of the study from its result files, by one path: results/tables/NAME.csv (numbers) and NAME.md (to read).

Every row says how many seeds it rests on, carries its 95 % t interval, and says what is held equal.
"""

from __future__ import annotations

from collections.abc import Callable

from depthtime import paths
from depthtime.config import Study
from depthtime.records import write_bytes
from depthtime.report.clustering import clustering
from depthtime.report.comparisons import difference, perplexity_by_step, summary, variants
from depthtime.report.controls import controls
from depthtime.report.costs import cost, references, tuning
from depthtime.report.decoding import decoding
from depthtime.report.diffeqformer import diffeqformer
from depthtime.report.downstream import downstream
from depthtime.report.frame import Table, csv, markdown
from depthtime.report.gradients import gradient_methods, gradients
from depthtime.report.sensitivity import sensitivity
from depthtime.report.solver_swap import leaks, solver_swap
from depthtime.report.sources import Sources, load_sources
from depthtime.report.spectra import spectra
from depthtime.report.speed import speed, speed_profile
from depthtime.report.trained_clustering import trained_clustering

TABLES = paths.RESULTS / "tables"

BUILDERS: dict[str, Callable[[Sources], Table]] = {
    "summary": summary,
    "perplexity_by_step": perplexity_by_step,
    "difference": difference,
    "controls": controls,
    "diffeqformer": diffeqformer,
    "gradients": gradients,
    "gradient_methods": gradient_methods,
    "solver_swap": solver_swap,
    "leaks": leaks,
    "decoding": decoding,
    "clustering": clustering,
    "trained_clustering": trained_clustering,
    "spectra": spectra,
    "sensitivity": sensitivity,
    "downstream": downstream,
    "variants": variants,
    "references": references,
    "cost": cost,
    "speed": speed,
    "speed_profile": speed_profile,
    "tuning": tuning,
}


def write_tables(study: Study) -> None:
    """Write every table of BUILDERS; the same result files give the same bytes.

    Raises: RecordError when a result file is missing, damaged or of other runs than the study's.
    """
    sources = load_sources(study)
    tables = {name: build(sources) for name, build in BUILDERS.items()}
    for name, table in tables.items():
        write_bytes(TABLES / f"{name}.csv", csv(table).encode())
        write_bytes(TABLES / f"{name}.md", markdown(table).encode())
