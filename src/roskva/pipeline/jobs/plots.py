"""The two pictures of `latency`: Figures 8 and 9 of the Thialfi paper, of your own node."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from roskva.pipeline.jobs.latency import Latency

FILES: Final = ("latency-cdf", "latency-stages")
SUFFIXES: Final = (".svg", ".png")

_INK: Final = "#22313f"
_FAINT: Final = "#8795a1"
_LINE: Final = "#0072b2"
_COLOURS: Final = {
    # Colours that people with any kind of sight tell apart (Okabe and Ito).
    "appended": "#56b4e9",
    "bridged": "#cc79a7",
    "matched": "#f0c544",
    "sent": "#009e73",
    "acked": "#d55e00",
}
_MEANING: Final = {
    "appended": "durable in the feed",
    "bridged": "through Spark",
    "matched": "matched",
    "sent": "sent to the client",
    "acked": "acked by the client",
}
_MARKED: Final = {0.5: "p50", 0.9: "p90", 0.99: "p99"}


def draw(found: Latency, directory: Path) -> list[Path]:
    """Both pictures, each as SVG and as PNG."""
    made = []
    with _style():
        for name, figure in zip(FILES, (curve(found), stages(found)), strict=True):
            for suffix in SUFFIXES:
                made.append(directory / f"{name}{suffix}")
                figure.savefig(made[-1])
    return made


@contextmanager
def _style() -> Iterator[None]:
    settings: dict[Any, Any] = {
        "font.family": "sans-serif",
        "font.size": 11,
        "text.color": _INK,
        "axes.labelcolor": _INK,
        "axes.edgecolor": _FAINT,
        "xtick.color": _INK,
        "ytick.color": _INK,
        "savefig.dpi": 150,
        "svg.hashsalt": "roskva",
    }
    with mpl.rc_context(settings):
        yield


def curve(found: Latency) -> Figure:
    """Which part of all deliveries took at most so long."""
    figure, axes = _figure(4.6)
    steps = len(found.curve) - 1
    shares = [i / steps for i in range(steps + 1)]
    times = [max(time, 1e-3) for time in found.curve]
    axes.plot(times, shares, color=_LINE, linewidth=2.2)
    axes.set_xscale("log")
    _milliseconds(axes)
    axes.set_ylim(0, 1.005)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    for share, name in _MARKED.items():
        time = times[round(share * steps)]
        axes.plot([time], [share], "o", color=_LINE, markersize=6)
        axes.annotate(
            f"{name}  {_time(time)}",
            (time, share),
            xytext=(10, -4 if share < 0.95 else -14),
            textcoords="offset points",
            fontweight="bold",
        )
    axes.set_xlabel("from publish to ack")
    axes.set_ylabel("deliveries that took at most so long")
    axes.grid(True, which="major", color=_FAINT, alpha=0.25, linewidth=0.8)
    _title(figure, "How long a notification takes", _subtitle(found))
    return figure


def stages(found: Latency) -> Figure:
    """What the time was spent on, for quick deliveries and for slow ones."""
    names = ["all", *found.groups]
    rows = [[stage.mean for stage in found.stages], *found.groups.values()]
    figure, axes = _figure(1.9 + 0.55 * len(names))
    longest = max(sum(row) for row in rows)
    for number, row in enumerate(rows):
        left = 0.0
        for stage, time in zip(found.stages, row, strict=True):
            axes.barh(
                number, time, left=left, height=0.62, color=_COLOURS[stage.stage], edgecolor="white"
            )
            if time > 0.04 * longest:
                inside = f"{time:.2g}"
                axes.text(left + time / 2, number, inside, ha="center", va="center", size=9.5)
            left += time
        axes.text(left + 0.012 * longest, number, _time(left), va="center", fontweight="bold")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, 1.13 * longest)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda time, _: f"{time:g}"))
    axes.set_xlabel("milliseconds, mean of the group")
    axes.grid(True, axis="x", color=_FAINT, alpha=0.25, linewidth=0.8)
    axes.set_axisbelow(True)
    handles = [
        mpl.patches.Patch(color=_COLOURS[stage.stage], label=_MEANING[stage.stage])
        for stage in found.stages
    ]
    axes.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.45, -0.3 + 0.02 * len(names)),
        ncols=len(handles),
        frameon=False,
        handlelength=1,
        columnspacing=1.4,
    )
    _title(figure, "Where the time goes", _subtitle(found))
    return figure


def _figure(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8.4, height), layout="constrained")
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _title(figure: Figure, title: str, subtitle: str) -> None:
    figure.suptitle(title, x=0.012, ha="left", fontsize=14, fontweight="bold")
    figure.axes[0].set_title(" \n ", fontsize=4)  # room
    figure.text(0.012, 0.905, subtitle, fontsize=10, color=_FAINT)


def _subtitle(found: Latency) -> str:
    day = found.first.strftime("%Y-%m-%d")
    return f"{found.deliveries:,} sampled deliveries of {found.updates:,} updates, {day}"


def _milliseconds(axes: Axes) -> None:
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda time, _: _time(time)))


def _time(milliseconds: float) -> str:
    if milliseconds >= 1000:
        return f"{milliseconds / 1000:.3g} s"
    return f"{milliseconds:.3g} ms"
