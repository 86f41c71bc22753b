"""Whole clusters whose tokens are short-lived, and whose clients are all sent away now and then."""

from collections import Counter

import msgspec
import pytest

from roskva.simulation.tape import tape_of
from roskva.simulation.world import World

LIFETIME = 150.0
"""Seconds, in runs of ten minutes: tokens are renewed, and expire while clients are away."""


def run(seed: int, *revoked_at: float) -> Counter[str]:
    tape = tape_of(seed)
    # All of them are one principal here, which may have as many clients as there are.
    swarm = msgspec.structs.replace(tape.swarm, max_clients=0)
    world = World(msgspec.structs.replace(tape, swarm=swarm))
    world.token_lifetime = LIFETIME
    for at in revoked_at:
        world.clock.after(at, world.revoke)
    report = world.run()
    assert report.violation is None, f"seed {seed}"
    counted: Counter[str] = Counter()
    for registrar in world.registrars:
        counted.update(registrar.core.counters)
    return counted


@pytest.mark.parametrize("first", range(0, 12, 3))
def test_nobody_is_lost_when_tokens_are_renewed_expire_and_are_revoked(first: int) -> None:
    counted: Counter[str] = Counter()
    for seed in range(first, first + 3):
        counted += run(seed)
        counted += run(seed, 30.0, 90.0, 91.0, 200.0, 300.0)
    assert counted["refreshed_tokens"] > 0
    assert counted["revoked"] > 0
    assert counted["rejected_tokens"] > 0
