"""Traces as a node would leave them, made up: for trying the `latency` job and for its tests."""

import random
from pathlib import Path

from roskva.feed.trace import DIRECTORY, Trace
from roskva.model import Update

START_US = 1_700_000_000_000_000

DELAYS_MS = {
    "appended": (1.8, 0.45),
    "matched": (0.12, 0.5),
    "sent": (0.35, 0.8),
    "acked": (1.1, 0.7),
}
"""Of each stage the median, and how far it spreads (lognormal)."""
BRIDGED_MS = (60.0, 0.35)


def write_traces(
    data: Path, updates: int, clients: int = 3, *, bridged: bool, seed: int = 1
) -> None:
    """One process with the shards, and one with the sessions."""
    draw = random.Random(seed)
    state = Trace(data / DIRECTORY / "state", 1, START_US)
    front = Trace(data / DIRECTORY / "registrar", 1, START_US)
    for number in range(updates):
        key, version, at = f"app/object-{number % 100}", number, START_US + number * 10_000
        noted = [Update(key, version, "published", published_at=at)]
        delays = {**DELAYS_MS}
        for stage in ("appended", *(["bridged"] if bridged else []), "matched"):
            at += _delay(draw, *delays.get(stage, BRIDGED_MS))
            noted.append(Update(key, version, stage, published_at=at))
        state.write(noted, at)
        at += _delay(draw, *delays["sent"])
        noted = [Update(key, version, "sent", published_at=at)]
        for _ in range(clients):
            acked_at = at + _delay(draw, *delays["acked"])
            noted.append(Update(key, version, "acked", published_at=acked_at))
        front.write(noted, at)
    state.close(at)
    front.close(at)


def _delay(draw: random.Random, median_ms: float, spread: float) -> int:
    """Microseconds; one in two hundred takes much longer, as things do."""
    slow = 12.0 if draw.random() < 0.005 else 1.0
    return int(1000 * median_ms * slow * draw.lognormvariate(0, spread))
