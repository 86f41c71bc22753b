"""How fast somebody may publish."""

from roskva.config import LimitsConfig
from roskva.model import Principal
from roskva.server import admission
from roskva.server.admission import KEYLESS_BURST_S, PublishRates

KEY = Principal("key-1", "app", key=True)
ALICE, BOB = Principal("alice", "app"), Principal("bob", "app")
RATE = 64 * 1024
LIMITS = LimitsConfig(
    publishes_per_second=100,
    client_publishes_per_second=10,
    max_publish_updates=20,
    keyless_publish_bytes_per_second=RATE,
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


def test_without_keys_an_address_has_a_rate_in_bytes() -> None:
    found, clock = limited()
    half = [RATE] * (KEYLESS_BURST_S // 2)
    assert found.take_bytes("1.2.3.4", half) == len(half)
    assert found.take_bytes("1.2.3.4", [RATE, *half]) == len(half)
    assert found.take_bytes("1.2.3.4", [1]) == 0
    assert found.take_bytes("5.6.7.8", half) == len(half)
    clock.now += 0.5
    assert found.take_bytes("1.2.3.4", [RATE // 4] * 4) == 2
    clock.now += 3600
    assert found.take_bytes("1.2.3.4", [RATE] * 100) == KEYLESS_BURST_S


def test_a_large_request_is_refused_unread_while_there_is_little_left() -> None:
    found, clock = limited()
    assert found.has_bytes("1.2.3.4", 1 << 30)
    found.take_bytes("1.2.3.4", [RATE] * KEYLESS_BURST_S)
    assert not found.has_bytes("1.2.3.4", 1)
    assert found.has_bytes("5.6.7.8", 1)
    clock.now += 0.25
    assert found.has_bytes("1.2.3.4", RATE // 4)
    assert not found.has_bytes("1.2.3.4", 1 << 30)
    clock.now += 0.25
    assert found.has_bytes("1.2.3.4", 1 << 30)


def test_without_keys_there_may_be_no_rate() -> None:
    found = PublishRates(LimitsConfig(keyless_publish_bytes_per_second=None))
    assert found.take_bytes("1.2.3.4", [1 << 20] * 1000) == 1000


def test_whoever_was_idle_is_forgotten() -> None:
    found, clock = limited()
    for number in range(admission.MAX_BUCKETS):
        found.take(Principal(f"p{number}", "app"), 1)
    clock.now += 60
    found.take(ALICE, 1)
    assert len(found._buckets) == 1
