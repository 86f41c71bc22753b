"""Rows that garbage collection wants gone, and the second look that decides."""

from tests.core.pair import Pair

from roskva.core.effects import FromLink, Recheck, SendLink
from roskva.core.rows import Rows
from roskva.wire.links import Forget, Forgotten


def offline_client(pair: Pair) -> bytes:
    client = pair.client()
    client.register("app/x")
    pair.run(5)
    client.reachable = False
    client.lose_connection()
    pair.run(100)
    [row] = pair.shard.heads
    return row


def forget(pair: Pair, row: bytes, session: int) -> list[int]:
    """How many rows were forgotten, as answered."""
    pair.shard.forget(row, session)
    pair.run(1)
    return [answer.count for answer in pair.shard.forgotten if isinstance(answer, Forgotten)]


def test_the_row_of_a_client_that_is_away_goes() -> None:
    pair = Pair()
    row = offline_client(pair)
    assert forget(pair, row, pair.shard.heads[row][0]) == [1]
    assert row not in pair.shard.heads
    assert row not in pair.shard.cells


def test_a_client_that_was_back_since_it_was_looked_at_keeps_its_row() -> None:
    pair = Pair()
    row = offline_client(pair)
    assert forget(pair, row, pair.shard.heads[row][0] - 1) == [0]
    assert row in pair.shard.heads


def test_a_client_that_is_online_keeps_its_row() -> None:
    pair = Pair()
    client = pair.client()
    client.register("app/x")
    pair.run(5)
    [row] = pair.shard.heads
    assert forget(pair, row, pair.shard.heads[row][0]) == [0]
    assert row in pair.shard.heads


def test_a_row_that_cannot_be_read_is_not_counted_as_forgotten() -> None:
    pair = Pair()
    row = offline_client(pair)
    pair.shard.disk_fails = True
    assert forget(pair, row, pair.shard.heads[row][0]) == [0]


def test_forgetting_nobody_is_answered_at_once() -> None:
    effects = Rows(1, 0, 0.0).step(FromLink(3, Forget(7, 0, [])), 0.0)
    assert effects == [SendLink(3, Forgotten(7, 0))]


def test_a_recheck_tells_again_what_was_never_acked() -> None:
    pair = Pair()
    client = pair.client()
    client.auto_ack = False
    client.register("app/x")
    pair.publish("app/x", 5)
    pair.run(5)
    client.clear()
    pair.registrar.step(Recheck())
    pair.run(1)
    told = [said for message in client.heard for said in message.notifications]
    assert [(said.object, said.version) for said in told] == [("app/x", 5)]
