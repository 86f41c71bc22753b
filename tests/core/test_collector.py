"""Rows that nobody needs any more: who goes, who stays, and who is told."""

from tests.core.client_side import ClientSide
from tests.core.pair import Pair
from tests.core.test_forget import offline_client

from roskva.core.collector import Collector, CollectorConfig
from roskva.core.effects import LoadPage, Notify, NotifyUnknown, ObjectRow, Page, Persist
from roskva.core.expiry import (
    DAY_S,
    Keep,
    ScannedClient,
    client_expires_at,
    kept_for,
    object_expires_at,
)
from roskva.core.rows import Rows

ROUND_S = 700.0
"""Longer than it takes to look through everything."""
US = 10**6


def versions(client: ClientSide) -> list[int]:
    return [event.version for event in client.events if isinstance(event, Notify)]


def keep(app: str) -> Keep:
    return {"forever": Keep(None, None), "short": Keep(60.0, 60.0)}.get(app, Keep(DAY_S))


def test_a_client_is_kept_for_the_longest_of_its_apps_or_as_it_has_asked() -> None:
    assert kept_for(None, ["short", "other"], keep) == DAY_S
    assert kept_for(None, ["short", "forever"], keep) is None
    assert kept_for(None, [], keep) == DAY_S
    assert kept_for(5, ["forever"], keep) == 5
    assert kept_for(0xFFFFFFFF, ["short"], keep) == 60


def test_a_session_whose_end_is_not_known_is_away_since_it_was_last_possible() -> None:
    row = ScannedClient(b"c", 1, True, 100 * US, True, None, 1, ("short",))
    assert client_expires_at(row, keep, lost_at=500 * US) == 560 * US
    closed = ScannedClient(b"c", 1, True, 100 * US, False, None, 1, ("short",))
    assert client_expires_at(closed, keep, lost_at=500 * US) == 160 * US


def test_an_object_without_a_time_does_not_expire() -> None:
    assert object_expires_at("short/x", 7 * US, keep) == 67 * US
    assert object_expires_at("short/x", 0, keep) is None
    assert object_expires_at("other/x", 7 * US, keep) is None


def test_a_client_that_is_away_for_long_is_collected_with_what_it_was_registered_for() -> None:
    pair = Pair()
    pair.keep = Keep(1000.0)
    row = offline_client(pair)
    pair.run(500)
    assert row in pair.shard.heads
    pair.run(500 + 2 * ROUND_S)
    assert (row in pair.shard.heads, row in pair.shard.cells) == (False, False)
    counters = pair.shard.rows.counters
    assert (counters["collected"], counters["collected_registrations"]) == (1, 1)


def test_a_client_that_comes_back_after_that_registers_again_and_is_told() -> None:
    pair = Pair()
    pair.keep = Keep(100.0)
    client = pair.client()
    client.register("app/x")
    pair.publish("app/x", 5)
    pair.run(5)
    client.reachable = False
    client.lose_connection()
    pair.run(100 + 2 * ROUND_S + 5000)
    assert not pair.shard.heads
    pair.publish("app/x", 6)
    client.reachable = True
    pair.run(200)
    assert versions(client)[-1] == 6
    assert pair.shard.heads


def test_a_client_that_is_online_for_long_is_not_collected_though_its_shard_starts_again() -> None:
    pair = Pair()
    pair.keep = Keep(200.0)
    client = pair.client()
    client.register("app/x")
    pair.run(2 * ROUND_S)
    [row] = pair.shard.heads
    pair.shard.crash()
    pair.run(4 * ROUND_S)
    assert row in pair.shard.heads
    assert pair.shard.rows.counters["collected"] == 0


def test_a_client_that_is_online_is_not_collected_though_its_row_cannot_be_read() -> None:
    """Its registrar says over the new link that it is there, and the shard cannot place it."""
    pair = Pair()
    pair.keep = Keep(10.0)
    client = pair.client()
    client.register("app/x")
    pair.run(5)
    [row] = pair.shard.heads
    pair.shard.crash()
    pair.shard.disk_fails = True
    pair.run(110)
    pair.shard.disk_fails = False
    pair.run(4 * ROUND_S)
    assert row in pair.shard.heads
    assert pair.shard.rows.counters["collected"] == 0


def test_a_row_of_nobody_goes_and_its_client_that_is_online_registers_again() -> None:
    pair = Pair()
    client = pair.client()
    client.register("app/x")
    pair.run(5)
    [row] = pair.shard.heads
    del pair.shard.heads[row]
    pair.run(2 * ROUND_S)
    assert pair.shard.rows.counters["collected_orphans"] == 1
    assert row not in pair.shard.cells
    [new] = pair.shard.heads
    assert "app/x" in pair.shard.cells[new], "it has registered again"


def test_a_session_that_ends_at_a_time_of_its_own_is_collected_then() -> None:
    rows = Rows(1, 0, 0.0, lambda app: Keep(None))
    rows.note_due(7 * US, b"client")
    assert rows.take_due(6.9, 10) == []
    assert rows.take_due(7.0, 10) == [b"client"]
    assert rows.take_due(8.0, 10) == []


def test_who_was_back_since_a_page_was_asked_for_is_left_alone() -> None:
    rows = Rows(1, 0, 1000.0, lambda app: Keep(1.0))
    gone = ScannedClient(b"client", 1, True, 0, False, None, 1, ("app",))
    page = Page([gone], [], None, 0.0, 1)
    rows.watch_page()
    rows._touch(b"client")
    assert rows.step(page, 1010.0) == []
    rows.watch_page()
    [persist] = rows.step(page, 1010.0)
    assert isinstance(persist, Persist)


def test_a_row_that_could_not_be_dropped_is_looked_at_again() -> None:
    rows = Rows(1, 0, 1000.0, lambda app: Keep(None))
    collector = Collector(CollectorConfig(), rows, 1000.0)
    rows.note_due(0, b"client")
    [asked] = collector.tick(1000.0)
    assert isinstance(asked, LoadPage)
    assert asked.clients == [b"client"]
    collector.read(None)
    collector.done(1000.1)
    [again] = collector.tick(1005.0)
    assert isinstance(again, LoadPage)
    assert again.clients == [b"client"]


def test_an_object_that_nobody_asks_for_is_dropped_and_then_unknown_to_whoever_comes() -> None:
    pair = Pair()
    pair.keep = Keep(None, 100.0)
    client = pair.client()
    client.register("app/x")
    pair.publish("app/x", 5, published_at=1)
    pair.run(5)
    client.reachable = False
    client.lose_connection()
    pair.publish("app/x", 6, published_at=1)
    pair.run(6000)
    assert "app/x" not in pair.shard.objects
    client.clear()
    client.reachable = True
    pair.run(100)
    assert any(isinstance(event, NotifyUnknown) for event in client.events)
    pair.publish("app/x", 4, published_at=1)
    pair.run(20)
    assert 4 not in versions(client), "it has acked 5"


def test_an_object_that_somebody_wants_is_not_dropped() -> None:
    pair = Pair()
    pair.keep = Keep(None, 100.0)
    client = pair.client()
    client.register("app/x")
    pair.publish("app/x", 5, published_at=1)
    pair.run(2 * ROUND_S)
    assert "app/x" in pair.shard.objects


def test_an_object_that_was_written_since_its_page_was_asked_for_is_not_dropped() -> None:
    pair = Pair()
    pair.keep = Keep(None, 1.0)
    matcher = pair.shard.matcher
    pair.run(1)
    page = Page([], [("app/x", ObjectRow(5, published_at=1))], None, 0.0, 1)
    matcher.watch_page()
    pair.publish("app/x", 6)
    pair.run(1)
    assert pair.shard.objects["app/x"].version == 6, "it is on disk"
    assert matcher.collect(page, 10 * US) == []
    matcher.watch_page()
    assert len(matcher.collect(page, 10 * US)) == 1
