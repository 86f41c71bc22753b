"""How fast somebody may publish."""

from roskva.config import LimitsConfig
from roskva.model import NOBODY, Principal
from roskva.server import admission
from roskva.server.admission import PublishRates

KEY = Principal("key-1", "app", key=True)
ALICE, BOB = Principal("alice", "app"), Principal("bob", "app")
LIMITS = LimitsConfig(
    publishes_per_second=100, client_publishes_per_second=10, max_publish_updates=20
)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def limited() -> tuple[PublishRates, Clock]:
    clock = Clock()
    return PublishRates(LIMITS, clock), clock


def test_a_burst_and_then_the_rate() -> None:
    found, clock = limited()
    assert found.take(KEY, 70) == 70
    assert found.take(KEY, 70) == 30
    assert found.take(KEY, 70) == 0
    clock.now += 0.25
    assert found.take(KEY, 70) == 25
    clock.now += 60
    assert found.take(KEY, 1000) == 100


def test_a_client_has_a_rate_of_its_own_and_one_request_always_fits() -> None:
    found, clock = limited()
    assert found.take(ALICE, 20) == 20
    assert found.take(ALICE, 1) == 0
    assert found.take(BOB, 20) == 20
    clock.now += 1
    assert found.take(ALICE, 20) == 10


def test_over_a_long_time_nobody_gets_more_than_the_rate() -> None:
    found, clock = limited()
    taken = 0
    for _ in range(1000):
        clock.now += 0.01
        taken += found.take(KEY, 10)
    assert 1000 <= taken <= 1101


def test_a_node_without_keys_has_no_rates() -> None:
    found, _ = limited()
    assert found.take(NOBODY, 1_000_000) == 1_000_000


def test_whoever_was_idle_is_forgotten() -> None:
    found, clock = limited()
    for number in range(admission.MAX_BUCKETS):
        found.take(Principal(f"p{number}", "app"), 1)
    clock.now += 60
    found.take(ALICE, 1)
    assert len(found._buckets) == 1
