"""The two pictures of `latency`: Figures 8 and 9 of the Thialfi paper, of your own node."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter

from roskva.pipeline.jobs.latency import Latency

FILES: Final = ("latency-cdf", "latency-stages")
SUFFIXES: Final = (".svg", ".png")

_INK: Final = "#22313f"
_FAINT: Final = "#8795a1"
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
}
_SHARES: Final = (0, 0.2, 0.4, 0.6, 0.8, 1)
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
    _curve(axes, found.acked.curve, _COLOURS["acked"], "until acked", below=True)
    _curve(axes, found.sent.curve, _COLOURS["sent"], "until sent", below=False)
    axes.set_xscale("log")
    _milliseconds(axes, [max(time, 1e-3) for time in (*found.sent.curve, *found.acked.curve)])
    axes.set_ylim(0, 1.08)  # with room for what is written above the highest marks
    axes.set_yticks(_SHARES)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set(xlabel="since it was published", ylabel="deliveries that took at most so long")
    axes.grid(True, which="major", color=_FAINT, alpha=0.25, linewidth=0.8)
    axes.legend(loc="lower right", frameon=False)
    _title(figure, "How long a notification takes", _subtitle(found))
    return figure


def _curve(axes: Axes, curve: list[float], colour: str, label: str, *, below: bool) -> None:
    steps = len(curve) - 1
    times = [max(time, 1e-3) for time in curve]
    shares = [i / steps for i in range(steps + 1)]
    axes.plot(times, shares, color=colour, linewidth=2.2, label=label)
    for share, name in _MARKED.items():
        time = times[round(share * steps)]
        axes.plot([time], [share], "o", color=colour, markersize=6)
        axes.annotate(
            f"{name}  {_time(time)}",
            (time, share),
            xytext=(9, -13) if below else (-9, 4),
            textcoords="offset points",
            ha="left" if below else "right",
            color=colour,
            fontweight="bold",
        )


def stages(found: Latency) -> Figure:
    """What part of the time each stage takes, in quick deliveries and in slow ones."""
    names = [stage.stage for stage in found.stages if stage.stage != "acked"]
    rows = {"all": [stage.mean for stage in found.stages if stage.stage != "acked"], **found.groups}
    figure, axes = _figure(1.9 + 0.55 * len(rows))
    for number, row in enumerate(rows.values()):
        whole, left = sum(row) or 1.0, 0.0
        for name, time in zip(names, row, strict=True):
            share = time / whole
            axes.barh(
                number, share, left=left, height=0.62, color=_COLOURS[name], edgecolor="white"
            )
            if share > 0.09:
                inside = (left + share / 2, number, _time(time))
                axes.text(*inside, ha="center", va="center", size=9.5)
            left += share
        axes.text(1.015, number, _time(sum(row)), va="center", fontweight="bold")
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, 1.12)
    axes.set_xticks(_SHARES)
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel("of the time from published to sent; the means of each group")
    axes.grid(True, axis="x", color=_FAINT, alpha=0.25, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines["bottom"].set_bounds(0, 1)
    handles = [mpl.patches.Patch(color=_COLOURS[name], label=_MEANING[name]) for name in names]
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=len(handles),
        frameon=False,
        handlelength=1,
        columnspacing=1.6,
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


def _milliseconds(axes: Axes, times: list[float]) -> None:
    decades = math.log10(max(times) / min(times))
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 2.5 else (1.0,)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda time, _: _time(time)))
    axes.set_xlim(min(times) / 3, max(times) * 2)


def _time(milliseconds: float) -> str:
    """Two digits are all that matter."""
    if milliseconds >= 1000:
        return f"{milliseconds / 1000:.2g} s"
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.2g} ms"
