"""What a registrar's host does around the core: publishing, fan-out, who may be told."""

import pickle
from typing import TypeVar

from tests.host.test_fanout import Recorder, recorders

from roskva.core.effects import (
    Broadcast,
    FromLink,
    Handle,
    LinkDown,
    LinkUp,
    SendLink,
    Tick,
    Watching,
)
from roskva.core.identity import TokenKeys
from roskva.core.registrar import RegistrarConfig
from roskva.errors import BadInput, Overloaded, Unavailable
from roskva.host.delivery import MessageDelivery, Write
from roskva.host.effects import AudienceChecked, CheckAudience, Settled, Stopping, Submitted
from roskva.host.observer import Observer
from roskva.host.registrar import HostEffect, RegistrarHost
from roskva.host.submissions import PUBLISH_TIMEOUT_S, Holding
from roskva.model import NO_EPOCH, NO_VERSION, Update, shard_of
from roskva.wire import codec
from roskva.wire.links import (
    CurrentVersion,
    LinkHello,
    NotPublished,
    PublishUpdates,
    Push,
    Pushes,
    Registered,
    Superseded,
    UpdatesPublished,
    Versions,
    Welcome,
)

T = TypeVar("T")
NOW, SHARDS = 1000.0, 2
HERE = next(f"app/{i}" for i in range(100) if shard_of(f"app/{i}", SHARDS) == 0)
THERE = next(f"app/{i}" for i in range(100) if shard_of(f"app/{i}", SHARDS) == 1)
CONFIG = RegistrarConfig("registrar", SHARDS, linger=3600, link_timeout=3600)


class Asked:
    def __init__(
        self, *, slice: int = 1000, links: int = SHARDS, holding: Holding | None = None
    ) -> None:
        keys = TokenKeys({1: bytes(32)}, 1)
        self.host = RegistrarHost(CONFIG, keys, 0, NOW, slice=slice, holding=holding)
        self.now = NOW
        for shard in range(links):
            self.step(LinkUp(shard))

    def step(self, event: object) -> list[HostEffect]:
        return self.host.step(event, self.now)  # type: ignore[arg-type]

    def submit(self, *updates: object, request: str = "request") -> list[PublishUpdates]:
        """What is sent to the shards."""
        self.first = self.step(Submitted(request, updates))  # type: ignore[arg-type]
        sent = of_kind(self.first, SendLink)
        return [one.message for one in sent if isinstance(one.message, PublishUpdates)]

    def hear(self, shard: int, message: object) -> list[HostEffect]:
        return self.step(FromLink(shard, message))  # type: ignore[arg-type]

    def watch(self, conn: Handle, key: str = HERE, client: bytes = b"client") -> None:
        self.step(Watching(conn, client, [Registered(key, NO_VERSION, NO_EPOCH)]))

    def known(self, version: int, key: str = HERE) -> list[HostEffect]:
        return self.hear(shard_of(key, SHARDS), Versions([CurrentVersion(key, version, 1 << 20)]))

    def push(self, version: int, key: str = HERE) -> list[HostEffect]:
        push = Push(key, version, 1 << 20, previous=version - 1)
        return self.hear(shard_of(key, SHARDS), Pushes([push]))


def of_kind(effects: list[HostEffect], kind: type[T]) -> list[T]:
    return [effect for effect in effects if isinstance(effect, kind)]


# Publishing.


def test_updates_go_to_the_shards_of_their_objects_and_are_answered_together() -> None:
    registrar = Asked()
    updates = [Update(THERE, 1), Update(HERE, 2), Update(THERE, 3)]
    to_there, to_here = registrar.submit(*updates)
    assert [u.version for u in to_there.updates] == [1, 3]
    assert registrar.hear(0, UpdatesPublished(to_here.request, [20])) == []
    settled = registrar.hear(1, UpdatesPublished(to_there.request, [10, 30]))
    assert settled == [Settled("request", [10, 20, 30])]


def test_what_may_not_be_published_keeps_its_place_among_the_answers() -> None:
    registrar, bad = Asked(), BadInput("no")
    (publish,) = registrar.submit(bad, Update(HERE, 1))
    assert registrar.hear(0, UpdatesPublished(publish.request, [1])) == [
        Settled("request", [bad, 1])
    ]


def test_a_request_of_which_nothing_may_be_published_is_answered_at_once() -> None:
    registrar, bad = Asked(), BadInput("no")
    assert registrar.submit(bad) == []
    assert registrar.first == [Settled("request", [bad])]


def outcomes(effects: list[HostEffect]) -> list[object]:
    (settled,) = of_kind(effects, Settled)
    return list(settled.outcomes)


def test_a_shard_that_refuses_says_why() -> None:
    registrar = Asked()
    (publish,) = registrar.submit(Update(HERE, 1))
    refused = NotPublished(publish.request, Overloaded.code, "too many")
    (outcome,) = outcomes(registrar.hear(0, refused))
    assert isinstance(outcome, Overloaded)


def published(effects: list[HostEffect]) -> list[PublishUpdates]:
    sent = of_kind(effects, SendLink)
    return [one.message for one in sent if isinstance(one.message, PublishUpdates)]


def test_what_was_on_a_link_that_broke_is_sent_again_on_the_next() -> None:
    registrar = Asked()
    to_here, to_there = registrar.submit(Update(HERE, 1), Update(THERE, 1))
    assert of_kind(registrar.step(LinkDown(0)), Settled) == []
    assert registrar.hear(1, UpdatesPublished(to_there.request, [7])) == []
    assert registrar.host.submissions.sent_again == 0, "not yet"
    (again,) = published(registrar.step(LinkUp(0)))
    assert again == to_here
    assert registrar.host.submissions.sent_again == 1
    assert outcomes(registrar.hear(0, UpdatesPublished(again.request, [5]))) == [5, 7]
    assert published(registrar.step(LinkUp(0))) == [], "it is answered"


def test_what_waits_for_a_shard_leaves_after_the_hello_and_in_its_order() -> None:
    registrar = Asked()
    (first,) = registrar.submit(Update(HERE, 1), request="first")
    registrar.step(LinkDown(0))
    for version in (2, 3):
        assert registrar.submit(Update(HERE, version), request=str(version)) == []
        assert registrar.first == []
    effects = registrar.step(LinkUp(0))
    assert isinstance(of_kind(effects, SendLink)[0].message, LinkHello)
    sent = published(effects)
    assert registrar.host.submissions.sent_again == 1, "the others had not been sent"
    assert [update.version for message in sent for update in message.updates] == [1, 2, 3]
    assert sent[0] == first
    (last,) = registrar.submit(Update(HERE, 4))
    assert last.request > sent[-1].request


def test_a_publish_waits_as_long_as_patience_and_is_then_told_to_try_later() -> None:
    registrar = Asked()
    registrar.submit(Update(HERE, 1))
    registrar.now += 1.0
    registrar.step(LinkDown(0))
    registrar.now += 4.9
    assert of_kind(registrar.step(Tick()), Settled) == []
    registrar.now += 0.2
    assert registrar.host.next_deadline() <= registrar.now
    (outcome,) = outcomes(registrar.step(Tick()))
    assert isinstance(outcome, Unavailable)
    assert outcome.retriable
    assert published(registrar.step(LinkUp(0))) == []
    assert registrar.host.submissions.held_bytes == 0


def test_a_node_that_stops_answers_what_waits_for_a_shard_that_is_away() -> None:
    registrar = Asked()
    registrar.submit(Update(HERE, 1), Update(THERE, 1))
    registrar.step(LinkDown(0))
    assert not of_kind(registrar.step(Stopping()), Settled), "the other shard will answer"
    here, there = outcomes(registrar.hear(1, UpdatesPublished(2, [7])))
    assert isinstance(here, Unavailable)
    assert there == 7


def test_a_link_that_breaks_again_and_again_holds_nobody_for_ever() -> None:
    registrar = Asked()
    registrar.submit(Update(HERE, 1))
    began, effects = registrar.now, list[HostEffect]()
    while not of_kind(effects, Settled):
        registrar.step(LinkDown(0))
        registrar.now += 1.0
        registrar.step(LinkUp(0))
        effects = registrar.step(Tick())
        assert registrar.now <= began + PUBLISH_TIMEOUT_S
    (outcome,) = outcomes(effects)
    assert isinstance(outcome, Unavailable)


def test_more_than_may_wait_is_refused_at_once() -> None:
    for holding in (Holding(max_updates=2), Holding(max_bytes=500), Holding(patience_s=0.0)):
        registrar = Asked(links=0, holding=holding)
        waiting = 0
        for version in range(5):
            registrar.submit(Update(HERE, version))
            waiting += registrar.first == []
        assert waiting == (2 if holding.patience_s else 0)
        assert isinstance(outcomes(registrar.first)[0], Unavailable)
        sent = published(registrar.step(LinkUp(0)))
        assert [message.updates[0].version for message in sent] == list(range(waiting))
        assert registrar.host.submissions.held_updates == 0
        assert registrar.host.submissions.held_bytes == 0


def test_a_reset_that_may_be_in_the_feed_is_not_sent_again() -> None:
    """What was published in between would be forgotten."""
    registrar = Asked()
    registrar.submit(Update(HERE, 77, reset=True))
    (outcome,) = outcomes(registrar.step(LinkDown(0)))
    assert isinstance(outcome, Unavailable)
    assert registrar.submit(Update(HERE, 78, reset=True)) == []
    assert len(published(registrar.step(LinkUp(0)))) == 1, "that one was never sent"


def test_a_shard_that_says_nothing_is_given_up_in_the_end() -> None:
    registrar = Asked()
    registrar.submit(Update(HERE, 1))
    registrar.now += PUBLISH_TIMEOUT_S
    assert registrar.host.next_deadline() <= registrar.now
    (outcome,) = outcomes(registrar.step(Tick()))
    assert isinstance(outcome, Unavailable)


# Links.


def test_a_shard_answers_from_its_welcome_until_its_link_breaks() -> None:
    registrar = Asked(links=1)
    assert registrar.host.welcomed == set()
    registrar.hear(0, Welcome(0))
    assert registrar.host.welcomed == {0}
    registrar.step(LinkDown(0))
    assert registrar.host.welcomed == set()


# Telling.


def listening(registrar: Asked, count: int) -> list[Recorder]:
    """They have been told of version 1."""
    found = recorders(count)
    for number, one in enumerate(found):
        registrar.watch(one, client=b"client-%d" % number)
    registrar.known(1)
    while registrar.host.next_deadline() <= registrar.now:
        registrar.step(Tick())
    for one in found:
        one.versions.clear()
    return found


def test_an_update_is_told_to_many_in_slices_and_a_newer_one_overtakes_it() -> None:
    registrar = Asked(slice=2)
    found = listening(registrar, 5)
    registrar.push(2)
    registrar.step(Tick())
    registrar.push(3)
    while registrar.host.fanout.pending:
        registrar.step(Tick())
    assert [one.versions for one in found] == [[2, 3], [2, 3], [3], [3], [3]]


def test_a_slice_that_is_waiting_is_due_at_once() -> None:
    registrar = Asked(slice=2)
    listening(registrar, 5)
    assert registrar.host.next_deadline() > registrar.now
    registrar.push(2)
    assert registrar.host.next_deadline() == 0.0


def test_who_lags_in_a_fan_out_is_known_to_the_core_when_it_is_over() -> None:
    registrar = Asked()
    found = listening(registrar, 1)
    slow = MessageDelivery(codec.encode)
    registrar.watch(slow, client=b"slow")
    registrar.known(1)
    slow.pause()  # and nobody has told the core
    registrar.push(2)
    assert found[0].versions == [1, 2]
    assert registrar.host.core.conns[slow].lagging


def test_who_may_hear_of_a_guarded_app_is_asked_before_anybody_is_told() -> None:
    registrar = Asked()
    found = listening(registrar, 3)
    registrar.host.guarded = frozenset(("app",))
    (check,) = of_kind(registrar.push(2), CheckAudience)
    assert [one.versions for one in found] == [[], [], []]
    allowed = Broadcast(check.broadcast.message, found[:1], check.broadcast.step)
    registrar.step(AudienceChecked(allowed))
    assert [one.versions for one in found] == [[2], [], []]


# Watching.


class Facts(Observer):
    def __init__(self) -> None:
        self.sessions = 0
        self.ends: list[str] = []

    def told(self, notifications: object, sessions: int) -> None:
        self.sessions += sessions

    def ended(self, session: object, code: str) -> None:
        self.ends.append(code)


def test_observers_hear_how_many_are_told_and_who_has_to_go() -> None:
    registrar = Asked()
    registrar.host.observer = facts = Facts()
    found = listening(registrar, 3)
    told = facts.sessions
    registrar.push(2)
    assert facts.sessions == told + len(found)
    registrar.hear(0, Superseded(b"nobody here", 5))
    assert facts.ends == []


# As a whole.


def test_a_host_can_be_pickled_in_the_middle_of_a_fan_out() -> None:
    registrar = Asked(slice=1)
    for number in range(3):
        conn = MessageDelivery(codec.encode)
        conn.address = 10 + number
        registrar.watch(conn, client=b"client-%d" % number)
    registrar.known(1)
    while registrar.host.next_deadline() <= registrar.now:
        registrar.step(Tick())
    registrar.push(2)
    registrar.submit(Update(HERE, 9))
    registrar.host = pickle.loads(pickle.dumps(registrar.host))
    written: list[int] = []
    while registrar.host.fanout.pending:
        for write in of_kind(registrar.step(Tick()), Write):
            written += write.addresses
    assert sorted(written) == [10, 11, 12]
