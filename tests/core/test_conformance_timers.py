"""Conformance 35–37, 41–45, 51 and 54: when things are sent, and when not."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.lone import IDENTITY, SESSION, LoneClient
from tests.core.pair import Pair

from roskva.core.backoff import Backoff, Dice, Rate, RateLimit
from roskva.core.client import ClientConfig
from roskva.core.effects import (
    Connected,
    Disconnected,
    FromServer,
    Online,
    OpenConnection,
    Register,
    RegistrationFailure,
    SendLink,
    Stop,
    Tick,
    Trouble,
)
from roskva.wire.links import Ping
from roskva.wire.messages import PROTOCOL, ServerError, ServerMessage, SessionConfig

SEEDS = st.integers(0, 2**64 - 1)


def most_in_a_window(times: list[float], window: float) -> int:
    return max(sum(start <= at < start + window for at in times) for start in times)


def test_c35_a_heartbeat_interval_of_1_ms_still_obeys_the_rate_limit() -> None:
    client = LoneClient(ClientConfig("app", rate=Rate(10, 1000)))
    client.greet()
    client.hear(session=SESSION, config=SessionConfig(heartbeat_ms=1))
    for _ in range(20):
        client.run(1)
        client.hear(session=SESSION)
    times = [at for at, _ in client.sent]
    assert len(times) > 100
    assert most_in_a_window(times, 1.0) <= 10


@given(SEEDS, st.floats(0.001, 10_000))
def test_c36_smeared_delays_stay_within_20_percent_and_vary(seed: int, delay: float) -> None:
    dice = Dice(seed)
    smeared = [dice.smear(delay) for _ in range(100)]
    assert all(0.8 * delay <= s <= 1.2 * delay for s in smeared)
    assert max(smeared) - min(smeared) > 0.2 * delay
    assert len(set(smeared)) > 90


def test_c36_two_clients_do_not_beat_in_step() -> None:
    clients = [LoneClient(seed=seed) for seed in range(10)]
    for client in clients:
        client.settle()
        client.run(1500)
    assert len({client.sent[0][0] for client in clients}) == 10


def refuse_connections(client: LoneClient, seconds: float) -> list[float]:
    """When it tried; every try fails at once."""
    tries: list[float] = []
    end = client.now + seconds
    while (at := client.core.next_deadline()) is not None and at <= end:
        client.now = max(client.now, at)
        if OpenConnection() in client.core.step(Tick(), client.now):
            tries.append(client.now)
            client.core.step(Disconnected(), client.now)
    client.now = end
    return tries


def test_c37_after_repeated_failures_the_client_waits_and_wakes_later() -> None:
    client = LoneClient()
    tries = refuse_connections(client, 3600)
    assert tries[1] - tries[0] < 0.1
    assert max(later - earlier for earlier, later in pairwise(tries)) <= 120
    assert 3600 / 120 <= len(tries) < 3600 / 20
    while not client.hellos():
        client.run(1)
    client.grant()
    client.register("app/x")
    client.run(1)
    assert client.operations()


def test_c37_a_server_that_turns_clients_away_names_each_a_time_of_its_own() -> None:
    pair = Pair(handshakes=Rate(1, 10_000))
    clients = [pair.client() for _ in range(5)]
    pair.run(1)
    served = [client for client in clients if client.messages() or client.identity]
    assert len(served) == 1
    times = [client.heard[0].not_before_ms or 0 for client in clients if client not in served]
    assert all(later - earlier >= 9000 for earlier, later in pairwise(sorted(times)))
    pair.run(600)
    assert all(client.identity for client in clients)


def test_c41_periodic_tasks_run_exactly_as_often_as_due() -> None:
    pair = Pair()
    pings: list[float] = []

    def watch(_: object, effects: Sequence[object]) -> None:
        pings.extend(
            pair.now
            for effect in effects
            if isinstance(effect, SendLink) and isinstance(effect.message, Ping)
        )

    pair.on_step = watch
    pair.run(100.5)
    assert pings == pytest.approx([1001 + i for i in range(100)])


@given(st.lists(st.floats(0.01, 40), max_size=30))
def test_c41_ticks_that_come_too_often_change_nothing(pauses: list[float]) -> None:
    calm, hurried = LoneClient(), LoneClient()
    for client in (calm, hurried):
        client.greet()
        client.hear(session=SESSION, config=SessionConfig(heartbeat_ms=20_000))
    for pause in pauses:
        calm.run(pause)
        hurried.run(pause)
        hurried.step(Tick())
        for client in (calm, hurried):
            client.hear(session=SESSION)
    assert calm.sent == hurried.sent


@given(SEEDS, st.floats(0.1, 10), st.floats(10, 100))
def test_c42_backoff_windows_double_up_to_a_cap_after_a_first_try_at_once(
    seed: int, first: float, cap: float
) -> None:
    dice, backoff = Dice(seed), Backoff(first, cap)
    for _ in range(2):
        assert backoff.next_delay(dice) == 0
        ceiling = first
        for _ in range(12):
            assert 0 <= backoff.next_delay(dice) < ceiling
            ceiling = min(2 * ceiling, cap)
        backoff.reset()


def test_c42_the_wait_is_anywhere_in_its_window() -> None:
    dice = Dice(1)
    waits = []
    for _ in range(1000):
        backoff = Backoff(1.0, 8.0)
        backoff.next_delay(dice)
        waits.append(backoff.next_delay(dice))
    tenths = [sum(i / 10 <= wait < (i + 1) / 10 for wait in waits) for i in range(10)]
    assert all(60 < count < 140 for count in tenths)


def test_c43_scheduling_what_is_scheduled_runs_it_once() -> None:
    client = LoneClient()
    client.settle()
    client.run(100)
    for _ in range(3):
        client.step(Online())
    client.register("app/a")
    client.register("app/b")
    client.run(5)
    [message] = client.messages()
    assert len(message.operations) == 2


@given(
    st.lists(st.floats(0, 3, allow_nan=False), min_size=1, max_size=300),
    st.integers(1, 20),
    st.integers(20, 2000),
)
def test_c44_a_rate_limit_is_never_exceeded(
    pauses: list[float], count: int, window_ms: int
) -> None:
    limit, now, taken = RateLimit(Rate(count, window_ms)), 50.0, []
    for pause in pauses:
        now += pause**8  # mostly storms
        if limit.take(now):
            taken.append(now)
        else:
            assert now < limit.free_at()
    window = window_ms / 1000
    for i, start in enumerate(taken):
        assert sum(start <= at < start + window for at in taken[i:]) <= count


def test_a_rate_may_be_more_than_one_in_a_millisecond() -> None:
    limit = RateLimit(Rate(5000, 1000))
    assert all(limit.take(50.0) for _ in range(5000))
    assert not limit.take(50.9)
    assert limit.take(51.0)


STORM = st.lists(
    st.sampled_from(
        [
            Register("app/a"),
            Register("app/a", 1),
            Register("app/b", 2),
            Online(),
            Disconnected(),
            Connected(),
            FromServer(ServerMessage(PROTOCOL, error=ServerError("overloaded"))),
            FromServer(ServerMessage(PROTOCOL, SESSION, config=SessionConfig(heartbeat_ms=1))),
        ]
    ),
    max_size=200,
)


def storm(client: LoneClient, events: list[object], pause: float) -> list[float]:
    for event in events:
        client.step(event)  # type: ignore[arg-type]
        client.run(pause)
        if client.hellos() and client.sent[-1][1] == client.hellos()[-1]:
            client.grant()
    return [at for at, _ in client.sent]


@given(STORM, st.sampled_from([0.0, 0.001, 0.03]))
def test_c45_a_client_keeps_its_rate_in_a_storm(events: list[object], pause: float) -> None:
    client = LoneClient(ClientConfig("app", rate=Rate(5, 1000), batch_delay=0.001))
    times = storm(client, events, pause)
    assert not times or most_in_a_window(times, 1.0) <= 5


def test_c45_a_client_keeps_its_rate_when_every_token_is_rejected() -> None:
    client = LoneClient(ClientConfig("app", rate=Rate(5, 1000)), identity=IDENTITY)
    client.run(1)
    for _ in range(100):
        client.hear(error=ServerError("token_rejected"))
        client.run(0.001)
    assert most_in_a_window([at for at, _ in client.sent], 1.0) <= 5


def test_c51_back_online_a_heartbeat_goes_at_once_only_after_a_minute_of_silence() -> None:
    client = LoneClient()
    client.settle()
    client.run(58)
    client.step(Online())
    client.run(1)
    assert not client.sent
    client.run(1.5)
    client.step(Online())
    client.run(0.1)
    assert len(client.messages()) == 1


def test_c51_back_online_a_client_without_a_connection_tries_at_once() -> None:
    client = LoneClient()
    refuse_connections(client, 1000)
    client.step(Online())
    client.run(0.01)
    assert len(client.hellos()) == 1


def test_c54_a_register_after_the_stop_is_an_error() -> None:
    client = LoneClient()
    client.greet()
    client.step(Stop())
    client.clear()
    client.register("app/x")
    assert client.events == [RegistrationFailure("app/x", False, "stopped")]
    assert client.core.next_deadline() is None


def test_c54_a_stopped_client_stays_silent_whatever_still_reaches_it() -> None:
    client = LoneClient()
    client.step(Stop())
    client.clear()
    client.now += 10
    for event in (Tick(), Online(), Connected(), Disconnected(), Tick()):
        client.step(event)
    client.hear(error=ServerError("overloaded"))
    assert not client.effects
    assert not client.of_kind(Trouble)
