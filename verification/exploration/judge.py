"""What must hold in every state, and what must come true from each of them."""

from typing import Any

from roskva.core.effects import ObjectRow, Persist, PutRegistered
from roskva.core.freshness import Due, due
from roskva.model import NO_MARK, mark_under, object_epoch, shard_part
from roskva.simulation.oracle import Violation
from roskva.wire.links import CurrentVersion, Push, Pushes, Taken, UpdatesPublished, Versions
from roskva.wire.messages import ServerMessage
from verification.exploration.bounds import Bounds
from verification.exploration.machines import KnownClient, KnownRegistrar, KnownShard
from verification.exploration.state import (
    EPOCH,
    WHOLE_APP,
    ExploredDisk,
    ExploredState,
    Wire,
    change_of,
    index_of,
)


def told(state: ExploredState, client: int, index: int, version: int) -> None:
    change = change_of(version)
    if not 1 <= change <= state.published[index]:
        raise Violation(f"client {client} was told version {version}, which nobody published")
    acked = state.clients[client].objects[index].acked
    if change < acked:
        raise Violation(f"client {client} was told change {change} after it acked {acked}")


def accepted(disk: ExploredDisk, operation: Any) -> None:
    """The row's owner lets a write through."""
    for write in operation.writes if type(operation) is Persist else ():
        if type(write) is PutRegistered and write.session < disk.newest_session(write.client):
            raise Violation("a fenced session changed a row")


def said(disk: ExploredDisk, message: Any) -> None:
    """A shard tells versions in epochs that the feed has begun, or in its very first."""
    told: list[CurrentVersion | Push] = []
    if type(message) is Versions:
        told += message.known
    elif type(message) is Pushes:
        told += message.pushes
    begun = {1, *(version for index, version in disk.feed if index <= EPOCH)}
    if any(shard_part(one.epoch) not in begun for one in told):
        raise Violation("a shard tells of versions in an epoch that never began")


def answered(disk: ExploredDisk, answer: Any) -> None:
    """The shard answers a publisher, or the bridge."""
    if type(answer) is UpdatesPublished:
        if answer.versions != [version for _, version in disk.feed[-1:]]:
            raise Violation(f"{answer.versions} were published, says the shard; they were not")
    elif type(answer) is Taken:
        durable(disk, answer.lineage, answer.offset)
    else:
        raise Violation(f"nothing is wrong with the feed, and the shard answers {answer}")


def durable(disk: ExploredDisk, lineage: int, offset: int) -> None:
    """So the shard says, to the bridge or to the feed: what is before may be forgotten."""
    if lineage == disk.lineage and offset > disk.applied:
        raise Violation(f"a batch was answered up to {offset}; on disk is {disk.applied}")


def marker(disk: ExploredDisk, rows: list[ObjectRow]) -> None:
    """It covers nothing that is not on disk, but for what was lost in an epoch before."""
    if disk.lineage != disk.feed_lineage:
        return
    generation = 0
    for offset, (index, version) in enumerate(disk.feed[: disk.applied], 1):
        excused = offset < disk.feed_first and disk.epoch > disk.lost_in
        if index <= EPOCH:
            there = disk.excused >= EPOCH - index
        elif index == WHOLE_APP:
            generation = version
            there = disk.generation >= generation
        else:
            there = (rows[index].generation, rows[index].version) >= (generation, version)
        if not there and not excused:
            raise Violation(f"the marker {disk.applied} covers {offset}, which is not on disk")


def confirmed(
    state: ExploredState,
    bounds: Bounds,
    conn: Wire,
    facts: KnownRegistrar,
    message: ServerMessage,
) -> None:
    """A registrar vouches for registrations, one by one or by a digest."""
    link = state.link_of(conn.registrar)
    registered = {index_of(s.object) for s in message.statuses if s.registered}
    for index in registered:
        if link is None or index not in link.learned:
            raise Violation("a registration was confirmed that no live link had vouched for")
    session = facts.sessions.get(conn.handle())
    if session is None or session.number != state.disk.newest_session(session.client_id):
        return
    if state.used("row_losses", bounds.row_losses):
        return
    row = state.disk.row(session.client_id)
    on_disk = row.objects() if row else set()
    dropped = {index_of(s.object) for s in message.statuses if not s.registered}
    if not registered <= on_disk or dropped & on_disk:
        raise Violation("a registration was confirmed before it was durable")
    if message.digest is not None and on_disk != set(session.registered):
        raise Violation("a digest vouches for registrations that are not those on disk")


def remembered(facts: KnownRegistrar) -> None:
    if facts.problem is not None:
        raise Violation(facts.problem)


def counted_fresh(
    state: ExploredState,
    conn: Wire,
    client: KnownClient,
    registrar: KnownRegistrar,
    shard: KnownShard,
) -> None:
    """Whom a registrar takes to be fresh has acked that version in that epoch, or declared it."""
    session = registrar.sessions.get(conn.handle())
    if session is None or session.client_id != client.client_id:
        return
    app = state.clients[conn.dialer].objects
    epoch = object_epoch(shard.epoch, mark_under(NO_MARK, shard.generation))
    for index, acked in session.registered.items():
        if change_of(acked[0]) > app[index].claimed:
            raise Violation(f"a registrar counts {acked[0]} as acked; it never was")
        known = registrar.known.get(index)
        if known is None or known[1] != epoch or due(acked, known) is not Due.NOTHING:
            continue
        if app[index].vouched != epoch and not app[index].declared:
            raise Violation("a registrar counts a client as fresh that acked nothing in this epoch")


def is_fresh(state: ExploredState) -> bool:
    """Every application holds the newest version of all that it wants."""
    return all(
        not at.wanted or at.knows == newest
        for client in state.clients
        for at, newest in zip(client.objects, state.published, strict=True)
    )


def is_settled(
    state: ExploredState,
    bounds: Bounds,
    clients: list[KnownClient],
    registrars: list[KnownRegistrar],
) -> bool:
    """Fresh, and registered for what is still to come: in the client, its session and its row.

    A row that was lost is made anew when it is next written, and not before.
    """
    if not is_fresh(state):
        return False
    for number, client in enumerate(state.clients):
        facts, conn = clients[client.core], state.conn_of(number)
        wanted = client.wanted()
        if conn is None or facts.session is None or facts.pending or facts.wanted != wanted:
            return False
        session = registrars[state.registrars[conn.registrar]].sessions.get(conn.handle())
        if session is None or set(session.registered) != wanted:
            return False
        row = state.disk.row(facts.client_id or b"")
        on_disk = row.objects() if row else set()
        if on_disk != wanted and (row or not state.used("row_losses", bounds.row_losses)):
            return False
    return True
