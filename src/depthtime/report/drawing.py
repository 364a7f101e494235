"""What the figures share: the style, files whose bytes depend on the data alone, and labels that do not overlap."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from matplotlib import rc_context, rc_params_from_file, rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from depthtime.records import write_bytes

STYLE = Path(__file__).with_name("depthtime.mplstyle")
GREY = "#777777"
DARK = "#222222"


@dataclass(frozen=True)
class EndLabel:
    """Text beside the right edge of the axes, at height `y` (data units)."""

    y: float
    text: str
    color: str = GREY
    is_bold: bool = False


@contextmanager
def styled() -> Iterator[None]:
    """The project's style over matplotlib's defaults; a user's own settings do not reach the figures."""
    with rc_context(rc_params_from_file(STYLE, use_default_template=True)):
        yield


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of `width` x `height` inches with one axes, outside pyplot's global state."""
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def new_panels(width: float, height: float, count: int) -> tuple[Figure, list[Axes]]:
    """A figure with `count` axes side by side that share the y axis."""
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(1, count, sharey=True, squeeze=False)[0])


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write NAME.png and NAME.svg without date, version or random ids."""
    for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, metadata=metadata, bbox_inches="tight", pad_inches=0.12)
        write_bytes(folder / f"{name}.{kind}", buffer.getvalue())


def style_colors(count: int) -> list[str]:
    """The first `count` colours of the style, repeated when there are more runs than colours."""
    cycle = rcParams["axes.prop_cycle"].by_key()["color"]
    return [f"#{str(cycle[i % len(cycle)]).lstrip('#')}" for i in range(count)]


def title(axes: Axes, finding: str, detail: str | None) -> None:
    """What the figure shows, and in a smaller line what it rests on."""
    axes.set_title(finding, pad=26 if detail else 12)
    if detail:
        axes.text(0, 1.03, detail, transform=axes.transAxes, color=GREY, size=9.5, va="bottom")


def end_labels(axes: Axes, labels: Sequence[EndLabel], size: float = 9, gap: float = 1.3) -> None:
    """Write labels in the right margin, moved apart where they would overlap, with a thin leader to their height.

    Call it when the limits of the axes are final. `gap` is the distance of neighbours in line heights.
    """
    if not labels:
        return
    height_pt = axes.get_window_extent().height * 72 / axes.figure.dpi
    ordered = sorted(labels, key=lambda label: label.y)
    wanted = [axes.transAxes.inverted().transform(axes.transData.transform((0, label.y)))[1] for label in ordered]
    for label, at, y in zip(ordered, wanted, spread(wanted, gap * size / height_pt), strict=True):
        axes.plot([1.0, 1.012, 1.032], [at, at, y], transform=axes.transAxes, clip_on=False, color=label.color, lw=0.8)
        weight = "bold" if label.is_bold else "normal"
        axes.text(
            1.04, y, label.text, transform=axes.transAxes, va="center", color=label.color, size=size, weight=weight
        )


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Heights at least `gap` apart, in the order of the ascending `wanted`, each cluster centred on what it wanted.

    Clusters that would touch are merged, so each label moves as little as its neighbours allow.
    """
    clusters: list[list[float]] = []
    for height in wanted:
        clusters.append([height])
        while len(clusters) > 1 and _start(clusters[-1], gap) < _start(clusters[-2], gap) + gap * len(clusters[-2]):
            clusters[-2:] = [clusters[-2] + clusters[-1]]
    return [_start(cluster, gap) + gap * i for cluster in clusters for i in range(len(cluster))]


def _start(cluster: list[float], gap: float) -> float:
    return sum(cluster) / len(cluster) - gap * (len(cluster) - 1) / 2
