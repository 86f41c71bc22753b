"""Plain SVG plots of curves, readable on a light page and on a dark one: they bring their own
background, and follow what the reader's system prefers."""

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

import msgspec

from benchmarks.result import Result
from benchmarks.turns import OURS

Point = tuple[float, float]


class Plot(msgspec.Struct, frozen=True):
    """Which results are drawn, and how. Each name is a curve over `at`; so is each peer of it."""

    file: str
    """Without suffix."""
    title: str
    x: str
    y: str
    """What the axes are labelled with, units included."""
    of: tuple[str, ...]
    log_x: bool = False
    log_y: bool = False
    side_by_side: bool = False
    """Each server has a colour, and of two names the second has lines that are broken."""


WIDTH: Final = 760
HEIGHT: Final = 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 36, 92, 56
_LEGEND_PITCH: Final = 20
_CHARACTER: Final = 6.7
"""Pixels, about, of a letter in a legend."""
_LIGHT: Final = ("#0072b2", "#d55e00", "#00835f", "#a8548a", "#8a6d00", "#4b5a68", "#2a8bd0")
_DARK: Final = ("#56b4e9", "#f28e4b", "#2cc09c", "#dc9bc2", "#e6c64c", "#a9b8c5", "#8fd0ff")
"""Colours that people with any kind of sight tell apart, after Okabe and Ito."""
_GREY: Final = "c5"
_STROKES: Final = ("", ' stroke-dasharray="5 4"')
Look = tuple[str, str]
"""The class of a colour, and an attribute that may break the line."""


class Curve(msgspec.Struct, frozen=True):
    name: str
    server: str
    """Or the paper."""
    points: list[Point]

    @property
    def label(self) -> str:
        return self.name if self.server == OURS else f"{self.name}: {self.server}"


def curves(plot: Plot, results: Sequence[Result]) -> list[Curve]:
    found: dict[tuple[str, str], list[Point]] = {}
    for name in plot.of:
        for result in results:
            if result.name != name:
                continue
            if result.curve:
                found.setdefault((name, OURS), []).extend(result.curve)
            elif result.at is not None:
                for server, value in {OURS: result.value, **result.peers}.items():
                    found.setdefault((name, server), []).append((result.at, value))
    return [Curve(name, server, sorted(points)) for (name, server), points in found.items()]


def looks(plot: Plot, lines: Sequence[Curve]) -> tuple[list[Look], dict[str, Look]]:
    """Of each curve, and of each entry of the legend."""
    if not plot.side_by_side:
        each = [(f"c{i % len(_LIGHT)}", "") for i in range(len(lines))]
        return each, {line.label: look for line, look in zip(lines, each, strict=True)}
    servers = dict.fromkeys(line.server for line in lines)
    colour = {server: f"c{i}" for i, server in enumerate(servers)}
    stroke = dict(zip(plot.of, _STROKES, strict=True))
    legend = {server: (colour[server], "") for server in servers}
    legend |= {name: (_GREY, stroke[name]) for name in plot.of}
    return [(colour[line.server], stroke[line.name]) for line in lines], legend


def draw(plot: Plot, results: Sequence[Result]) -> str | None:
    """The picture; None if nothing of it was measured."""
    lines = curves(plot, results)
    if not lines:
        return None
    each, entries = looks(plot, lines)
    legend, rows = _legend(entries)
    top = _TOP + (rows - 1) * _LEGEND_PITCH
    points = [point for line in lines for point in line.points]
    across = _Axis([x for x, _ in points], plot.log_x, _LEFT, WIDTH - _RIGHT)
    up = _Axis([y for _, y in points], plot.log_y, HEIGHT - _BOTTOM, top)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" aria-label="{escape(plot.title)}">',
        _style(),
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
        f'<text class="title" x="20" y="32">{escape(plot.title)}</text>',
        *legend,
        *_grid(across, up, top),
        f'<text class="label" x="{(_LEFT + WIDTH - _RIGHT) / 2:.0f}" y="{HEIGHT - 14}" '
        f'text-anchor="middle">{escape(plot.x)}</text>',
        f'<text class="label" transform="translate(20 {(top + HEIGHT - _BOTTOM) / 2:.0f}) '
        f'rotate(-90)" text-anchor="middle">{escape(plot.y)}</text>',
    ]
    for look, line in zip(each, lines, strict=True):
        parts += _line(look, [(across.at(x), up.at(y)) for x, y in line.points])
    return "\n".join([*parts, "</svg>", ""])


class _Axis:
    """From values to pixels, and where its ticks are."""

    def __init__(self, values: list[float], log: bool, start: float, end: float) -> None:
        positive = [value for value in values if value > 0]
        self._log = log and bool(positive)
        self._start, self._end = start, end
        if self._log:
            low, high = min(positive), max(positive)
            self.ticks = _log_ticks(low, high)
        else:
            self.ticks = _ticks(min(0.0, *values), max(values))
            low, high = self.ticks[0], self.ticks[-1]
        self._low, self._high = self._scale(min(low, self.ticks[0])), self._scale(high)
        if self._log:
            self._high = max(self._high, self._scale(self.ticks[-1]))
        if self._high == self._low:
            self._high += 1

    def _scale(self, value: float) -> float:
        return math.log10(value) if self._log else value

    def at(self, value: float) -> float:
        if self._log and value <= 0:
            return self._start
        part = (self._scale(value) - self._low) / (self._high - self._low)
        return self._start + part * (self._end - self._start)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers from at most `low` to at least `high`."""
    span = (high - low) or 1.0
    rough = span / 5
    power = 10 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = math.log10(high / low)
    steps = (1,) if decades > 4 else (1, 3) if decades > 2.5 else (1, 2, 5)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = [m * 10.0**e for e in exponents for m in steps]
    below = [tick for tick in every if tick <= low * 1.001]
    above = [tick for tick in every if tick >= high * 0.999]
    between = [tick for tick in every if low * 1.001 < tick < high * 0.999]
    return [*below[-1:], *between, *above[:1]]


def _grid(across: _Axis, up: _Axis, top: float) -> Iterable[str]:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    for tick in up.ticks:
        y = up.at(tick)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>'
        yield (
            f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{_short(tick)}</text>"
        )
    for tick in across.ticks:
        x = across.at(tick)
        yield f'<path class="grid" d="M{x:.1f} {top}V{bottom}"/>'
        yield (
            f'<text class="tick" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">'
            f"{number(tick)}</text>"
        )


def _legend(entries: dict[str, Look]) -> tuple[list[str], int]:
    """And how many rows it has."""
    parts: list[str] = []
    x, row = 20.0, 0
    for name, (colour, stroke) in entries.items():
        width = 26 + _CHARACTER * len(name) + 18
        if x + width > WIDTH and x > 20:
            x, row = 20.0, row + 1
        y = 58 + row * _LEGEND_PITCH
        parts.append(f'<path class="line {colour}"{stroke} d="M{x:.0f} {y - 4}h20"/>')
        parts.append(f'<circle class="dot {colour}" cx="{x + 10:.0f}" cy="{y - 4}" r="3.5"/>')
        parts.append(f'<text class="label" x="{x + 26:.0f}" y="{y}">{escape(name)}</text>')
        x += width
    return parts, row + 1


def _line(look: Look, points: list[Point]) -> Iterable[str]:
    colour, stroke = look
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    yield f'<path class="line {colour}"{stroke} d="M{path}"/>'
    if len(points) <= 30:
        for x, y in points:
            yield f'<circle class="dot {colour}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'


def _short(value: float) -> str:
    """Beside the axis there is room for `3,000`."""
    return f"{value / 1000:g} k" if 1e4 <= value < 1e6 else number(value)


def number(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:,g} M"
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def _style() -> str:
    return (
        "<style>text{font-family:system-ui,sans-serif;font-size:12.5px}"
        ".title{font-size:17px;font-weight:600}.line{fill:none;stroke-width:2.2}"
        ".grid{stroke-width:1;fill:none}"
        + _colours("#ffffff", "#1f2933", "#52606d", "#e1e6eb", _LIGHT)
        + "@media (prefers-color-scheme:dark){"
        + _colours("#151b21", "#e8edf2", "#a9b8c5", "#2b3640", _DARK)
        + "}</style>"
    )


def _colours(page: str, ink: str, faint: str, grid: str, lines: Sequence[str]) -> str:
    text = f".page{{fill:{page}}}text{{fill:{ink}}}.tick{{fill:{faint}}}.grid{{stroke:{grid}}}"
    for i, colour in enumerate(lines):
        text += f".line.c{i}{{stroke:{colour}}}.dot.c{i}{{fill:{colour}}}"
    return text
