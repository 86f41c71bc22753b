"""Fifty thousand registrations: only what differs is sent again, and no step does too much."""

import sys
from collections.abc import Sequence
from types import FrameType

from tests.core.client_side import ClientSide
from tests.core.lone import IDENTITY, LoneClient
from tests.core.pair import Pair
from tests.digests import sum_of

from roskva.core.effects import Recheck, Send, SendLink
from roskva.core.session import KEPT_AUDIENCE
from roskva.host.delivery import Write
from roskva.host.registrar import RegistrarHost
from roskva.host.shard import ShardHost
from roskva.model import NO_EPOCH, NO_VERSION, object_epoch
from roskva.wire.links import MAX_LINK_PARTS, Interest, Registered, Versions, WriteRows
from roskva.wire.messages import ServerDigest

MANY = 50_000
TURN = 1000
"""Registrations that a step may handle."""


def names(count: int) -> list[str]:
    return [f"app/object-{i}" for i in range(count)]


def client_with_row(pair: Pair, keys: list[str], *, acked: bool) -> tuple[ClientSide, bytes]:
    """A client that is about to start again, and its row on disk."""
    client = pair.client()
    client.register(keys[0])
    pair.run(1)
    [row] = pair.shard.heads
    assert pair.shard.stored is not None
    epoch = object_epoch(pair.shard.stored.epoch, 0) if acked else NO_EPOCH
    pair.shard.cells[row] = {key: Registered(key, NO_VERSION, epoch) for key in keys}
    client.restart()
    client.clear()
    return client, row


def resent(client: ClientSide) -> int:
    in_syncs = sum(len(sync.objects) for message in client.messages() for sync in message.syncs)
    return in_syncs + len(client.operations())


def client_with_many(pair: Pair, keys: list[str]) -> tuple[ClientSide, bytes]:
    """Registered for all of them, and told everything."""
    client = pair.client()
    client.register(*keys)
    pair.run(20)
    [row] = pair.shard.heads
    assert set(pair.shard.cells[row]) == set(keys)
    client.clear()
    return client, row


def test_one_difference_among_many_resends_about_one_in_256() -> None:
    pair = Pair()
    keys = names(MANY)
    client, row = client_with_many(pair, keys)
    client.reachable = False
    client.lose_connection()
    pair.run(1)
    missing = keys[12_345]
    del pair.shard.cells[row][missing]
    pair.publish(missing, 5)
    client.reachable = True
    client.clear()
    pair.run(10)
    assert set(pair.shard.cells[row]) == set(keys)
    assert 0 < resent(client) <= MANY // 128
    assert client.told(missing) == [5]
    client.clear()
    pair.run(10)
    assert not client.sent, "the two sides have come to rest"


def test_many_registrations_restated_after_a_restart_are_not_sent_if_the_digests_match() -> None:
    pair = Pair()
    keys = names(5000)
    client, _ = client_with_row(pair, keys, acked=True)
    client.register(*keys)
    pair.run(10)
    assert resent(client) == 0
    assert not [n for message in client.heard for n in message.notifications]


def test_one_difference_after_a_restart_resends_about_one_in_256() -> None:
    pair = Pair()
    keys = names(5000)
    client, row = client_with_row(pair, keys, acked=True)
    del pair.shard.cells[row][keys[1234]]
    client.register(*keys)
    pair.run(60)
    assert set(pair.shard.cells[row]) == set(keys)
    assert 0 < resent(client) <= len(keys) // 128


def test_registering_in_portions_sends_every_registration_once() -> None:
    pair = Pair()
    client = pair.client()
    keys = names(5000)
    for i in range(0, len(keys), 500):
        client.register(*keys[i : i + 500])
        pair.run(1)
    pair.run(10)
    [cells] = pair.shard.cells.values()
    assert set(cells) == set(keys)
    assert resent(client) <= 1.1 * len(keys)


def test_a_large_audience_is_who_is_registered_now() -> None:
    pair = Pair()
    crowd = [pair.client() for _ in range(KEPT_AUDIENCE + 2)]
    late, away, off = pair.client(), crowd[0], crowd[1]
    for client in crowd:
        client.register("app/x")
    pair.run(5)

    reached: list[int] = []

    def note(host: object, effects: Sequence[object]) -> None:
        reached.extend(len(each.addresses) for each in effects if isinstance(each, Write))

    pair.on_step = note

    def hears_of(version: int) -> set[ClientSide]:
        reached.clear()
        pair.publish("app/x", version)
        pair.settle()
        heard = {client for client in (*crowd, late) if client.told("app/x")[-1:] == [version]}
        assert reached == [len(heard)], "nobody else is written to"
        return heard

    assert hears_of(1) == {*crowd}
    late.register("app/x")
    pair.run(1)
    assert hears_of(2) == {*crowd, late}
    off.unregister("app/x")
    away.reachable = False
    away.lose_connection()
    pair.run(1)
    assert hears_of(3) == {*crowd, late} - {off, away}
    away.reachable = True
    pair.run(100)
    assert hears_of(4) == {*crowd, late} - {off}


def size(effect: object) -> int:
    """Registrations that an effect is about."""
    match effect:
        case Send(message=message):
            return len(message.notifications) + len(message.statuses)
        case Write(addresses=addresses):
            return len(addresses)
        case SendLink(message=Interest(add=add, drop=drop)):
            return max(len(add), len(drop))
        case SendLink(message=Versions(known=known)):
            return len(known)
    return 0


def watch(pair: Pair) -> list[int]:
    """What every step of the registrar and of the shard was about, from now on."""
    sizes: list[int] = []

    def note(machine: object, effects: Sequence[object]) -> None:
        if isinstance(machine, RegistrarHost | ShardHost):
            sizes.append(sum(map(size, effects)))

    pair.on_step = note
    return sizes


def test_the_hello_of_a_client_with_many_registrations_is_worked_off_in_slices() -> None:
    pair = Pair()
    client, _ = client_with_row(pair, names(MANY), acked=False)
    sizes = watch(pair)
    pair.run(3)
    assert sum(len(message.notifications) for message in client.heard) >= MANY
    assert max(sizes) <= TURN
    assert sum(size > 0 for size in sizes) >= 3 * MANY / TURN


def test_what_concerns_a_whole_session_is_worked_off_in_slices() -> None:
    """A new epoch, a new link, and the end of the session."""
    pair = Pair()
    count = 10 * TURN
    client, _ = client_with_many(pair, names(count))
    sizes = watch(pair)
    pair.shard.begin_feed_anew()
    pair.run(1)
    assert sum(len(message.notifications) for message in client.heard) >= count
    sizes.clear()
    pair.registrar.links[0].break_()
    pair.run(1)
    assert count <= sum(sizes)
    assert max(sizes) <= TURN
    sizes.clear()
    client.reachable = False
    client.lose_connection()
    pair.settle()
    assert len(sizes) >= count / TURN


def test_interest_that_nobody_wants_any_more_is_dropped_in_slices() -> None:
    pair = Pair()
    count = 3 * TURN
    client, _ = client_with_many(pair, names(count))
    client.reachable = False
    client.lose_connection()
    sizes = watch(pair)
    pair.run(70)
    assert sum(sizes) >= count
    assert max(sizes) <= TURN


def test_registering_for_many_at_once_tells_each_of_them_few_times() -> None:
    pair = Pair()
    client = pair.client()
    client.register(*names(4000))
    pair.run(10)
    assert 4000 <= sum(len(message.notifications) for message in client.heard) <= 2 * 4000


def calls_to_confirm(count: int) -> int:
    """Function calls until so many restated registrations are confirmed by one digest."""
    client = LoneClient(identity=IDENTITY)
    keys = names(count)
    client.register(*keys)
    client.run(0.1)
    calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(note)
    try:
        client.grant(digest=ServerDigest(count, sum_of(keys), 0))
    finally:
        sys.setprofile(None)
    assert len(client.events) == count + 1
    return calls


def test_confirming_takes_time_in_proportion_to_the_registrations() -> None:
    assert calls_to_confirm(2000) < 8 * calls_to_confirm(500)


def test_a_repair_writes_acks_in_pieces_that_a_link_takes() -> None:
    pair = Pair()
    keys = names(2 * MAX_LINK_PARTS + 200)
    _, row = client_with_many(pair, keys)
    pair.run(30)
    pair.shard.cells[row] = {key: Registered(key, NO_VERSION, NO_EPOCH) for key in keys}
    written: list[list[int]] = []

    def note(host: object, effects: Sequence[object]) -> None:
        sent = [effect.message for effect in effects if isinstance(effect, SendLink)]
        writes = [message.rows for message in sent if isinstance(message, WriteRows)]
        if writes:
            written.append([sum(len(row.put) for row in rows) for rows in writes])

    pair.on_step = note
    pair.registrar.step(Recheck())
    pair.run(30)
    assert sum(map(sum, written)) == len(keys)
    assert max(max(puts) for puts in written) <= MAX_LINK_PARTS
    assert max(map(sum, written)) <= TURN
    (session,) = pair.registrar.core.sessions.values()
    held = {cell.object: (cell.acked, cell.epoch) for cell in pair.shard.cells[row].values()}
    assert held == {key: session.acked(key) for key in session.registered}
