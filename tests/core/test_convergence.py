"""Whatever happens, in whatever order: once it stops, everybody knows the latest.

Applications behave well: told a version they know it, told unknown they look, and a registration
that failed for the moment they repeat. The sequence of events is drawn, with shrinking, so that a
failure comes with the shortest story that leads to it.
"""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.client_side import ClientSide
from tests.core.pair import Pair

from roskva.core.effects import (
    Notify,
    NotifyUnknown,
    RegistrationFailure,
    ReissueRegistrations,
)
from roskva.model import Key, Update, shard_of

CLIENTS, REGISTRARS, SHARDS = 2, 2, 2
KEYS = ["app/a", "app/d"]
assert {shard_of(key, SHARDS) for key in KEYS} == {0, 1}


class Story:
    def __init__(self, losses: list[bool]) -> None:
        self.losses = losses
        self.pair = Pair(
            shards=SHARDS, registrars=REGISTRARS, scan_interval=5.0, heartbeat=20.0, linger=5.0
        )
        self.latest: dict[Key, int] = {}
        """Per object the newest change at the backend."""
        self.version_of: dict[tuple[Key, int], int] = {}
        self.change_of: dict[tuple[Key, int], int] = {}
        self.clients = [
            self.pair.client(backoff_cap=4.0, fenced_wait=2.0, answer_timeout=3.0, heartbeat=20.0)
            for _ in range(CLIENTS)
        ]
        self.wanted: list[set[Key]] = [set() for _ in self.clients]
        self.knows: list[dict[Key, int]] = [{} for _ in self.clients]
        self.read = [0] * CLIENTS
        """How many of its events each application has looked at."""
        for who in range(CLIENTS):
            for key in KEYS:
                self.register(who, key, declare=False)
        self.wait(1)

    # What may happen.

    def register(self, who: int, key: Key, declare: bool) -> None:
        self.wanted[who].add(key)
        known = self.version_of.get((key, self.knows[who].get(key, 0)))
        self.clients[who].register(key, version=known if declare else None)

    def unregister(self, who: int, key: Key) -> None:
        self.wanted[who].discard(key)
        self.knows[who].pop(key, None)
        self.clients[who].unregister(key)

    def publish(self, key: Key) -> None:
        change = self.latest[key] = self.latest.get(key, 0) + 1
        version = change * 10
        self.version_of[key, change] = version
        self.change_of[key, version] = change
        self.pair.publish(key, version)

    def disconnect(self, who: int) -> None:
        self.clients[who].lose_connection()

    def move(self, who: int) -> None:
        """To the other registrar."""
        client = self.clients[who]
        here = self.pair.registrars.index(client.registrar)
        client.registrar = self.pair.registrars[1 - here]
        client.lose_connection()

    def restart(self, who: int) -> None:
        self.clients[who].restart()

    def crash_registrar(self, which: int) -> None:
        self.pair.registrars[which].crash()

    def crash_shard(self, which: int, losing: str) -> None:
        self.pair.shards[which].crash(losing=losing)

    def hold_link(self, which: int, shard: int) -> None:
        if shard in self.pair.registrars[which].links:
            self.pair.registrars[which].links[shard].hold()

    def swap_frames(self, who: int) -> None:
        conn = self.clients[who].conn
        if conn is not None:
            conn.up.frames.reverse()
            conn.up.held = not conn.up.held

    def lose_fast_path(self, which: int) -> None:
        self.pair.shards[which].fast_path = not self.pair.shards[which].fast_path

    def fail_disk(self, which: int) -> None:
        self.pair.shards[which].disk_fails = not self.pair.shards[which].disk_fails

    def new_epoch(self, which: int) -> None:
        """After everything published is on disk; what is lost with a feed: see conformance 74."""
        shard = self.pair.shards[which]
        shard.disk_fails = False
        shard.tell_feed_end()
        self.wait(1)
        shard.begin_feed_anew()

    def reset(self, key: Key) -> None:
        """Nothing changes at the backend, but nobody may rely on versions from before."""
        shard = self.pair.shards[shard_of(key, SHARDS)]
        shard.publish(Update(key, self.pair.next_id(), reset=True))

    def wait(self, seconds: float) -> None:
        """In steps, so that applications react while it goes on."""
        end = self.pair.now + seconds
        while self.pair.now < end:
            self.pair.run(min(0.5, end - self.pair.now))
            for who, client in enumerate(self.clients):
                self._look(who, client)

    def _look(self, who: int, client: ClientSide) -> None:
        events, self.read[who] = client.events[self.read[who] :], len(client.events)
        for event in events:
            match event:
                case Notify(object=key, version=version):
                    change = self.change_of[key, version]
                    self.knows[who][key] = max(change, self.knows[who].get(key, 0))
                case NotifyUnknown(object=key):
                    self.knows[who][key] = self.latest.get(key, 0)
                case RegistrationFailure(object=key, transient=True) if key in self.wanted[who]:
                    client.register(key)
                case ReissueRegistrations():
                    client.register(*sorted(self.wanted[who]))

    # The end.

    def loses(self) -> bool:
        return self.losses.pop() if self.losses else False

    def heal(self) -> None:
        self.losses.clear()
        for shard in self.pair.shards:
            shard.fast_path, shard.disk_fails = True, False
            shard.tell_feed_end()
        for client in self.clients:
            if client.conn is not None:
                client.conn.up.held = False
        self.wait(60)

    def check(self) -> None:
        self._check_knowledge()
        for who in range(CLIENTS):  # a row lost under a session is missed at the next hello
            self.disconnect(who)
        self.wait(30)
        self._check_knowledge()
        rows = [set(cells) for shard in self.pair.shards for cells in shard.cells.values() if cells]
        for wanted in self.wanted:
            assert not wanted or wanted in rows

    def _check_knowledge(self) -> None:
        for who, wanted in enumerate(self.wanted):
            for key in wanted:
                assert self.knows[who].get(key, 0) >= self.latest.get(key, 0), (who, key)


WHO = st.integers(0, CLIENTS - 1)
WHICH = st.integers(0, 1)
KEY = st.sampled_from(KEYS)
Action = tuple[Callable[..., None], *tuple[object, ...]]
COMMON: list[st.SearchStrategy[Action]] = [
    st.tuples(st.just(Story.register), WHO, KEY, st.just(False)),
    st.tuples(st.just(Story.unregister), WHO, KEY),
    st.tuples(st.just(Story.publish), KEY),
    st.tuples(st.just(Story.publish), KEY),
    st.tuples(st.just(Story.wait), st.sampled_from([0.06, 0.2, 1.0, 8.0])),
    st.tuples(st.just(Story.wait), st.sampled_from([0.06, 0.2, 1.0, 8.0])),
    st.tuples(st.just(Story.disconnect), WHO),
]
RARE: list[st.SearchStrategy[Action]] = [
    st.tuples(st.just(Story.move), WHO),
    st.tuples(st.just(Story.restart), WHO),
    st.tuples(st.just(Story.crash_registrar), WHICH),
    st.tuples(
        st.just(Story.crash_shard), WHICH, st.sampled_from(["", "objects", "clients", "everything"])
    ),
    st.tuples(st.just(Story.hold_link), WHICH, WHICH),
    st.tuples(st.just(Story.swap_frames), WHO),
    st.tuples(st.just(Story.lose_fast_path), WHICH),
    st.tuples(st.just(Story.fail_disk), WHICH),
    st.tuples(st.just(Story.new_epoch), WHICH),
    st.tuples(st.just(Story.reset), KEY),
]


def tell(actions: list[Action], losses: list[bool]) -> None:
    story = Story(losses)
    story.pair.loses = story.loses
    for do, *arguments in actions:
        do(story, *arguments)
    story.heal()
    story.check()


@settings(max_examples=60)
@given(st.lists(st.one_of(COMMON), max_size=25), st.lists(st.booleans(), max_size=30))
def test_after_losses_and_disconnects_everybody_knows_the_latest(
    actions: list[Action], losses: list[bool]
) -> None:
    tell(actions, losses)


@settings(max_examples=150)
@given(
    st.lists(st.one_of(COMMON + RARE), min_size=5, max_size=40),
    st.lists(st.sampled_from([False, False, False, True]), max_size=30),
)
def test_after_crashes_and_lost_state_everybody_knows_the_latest(
    actions: list[Action], losses: list[bool]
) -> None:
    tell(actions, losses)
