"""A simulated cluster whose app belongs to a change source: its objects are rows of a database.

Whoever is told of a row looks at once, and has to see at least that change; and at the end
everybody knows what the database holds. An object of another app is published as ever, and whoever
wants only that hears nothing of any doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, ClassVar, Final

from roskva.model import NO_VERSION, Key, Update, app_of, ordinal_of
from roskva.simulation import doubts
from roskva.simulation.clients import APP, AnyClient, ClientNode
from roskva.simulation.database import TABLE, Database
from roskva.simulation.doubts import SOURCE_FAULTS
from roskva.simulation.faults import NODE_FAULTS
from roskva.simulation.oracle import Violation
from roskva.simulation.pipeline import ObjectPublisher
from roskva.simulation.source import LateFlow, SourceNode, stamp_in
from roskva.simulation.tape import Tape
from roskva.simulation.world import World

if TYPE_CHECKING:
    from roskva.simulation.histories import History

ELSEWHERE: Final = "elsewhere/object"
_DUTIES_S: Final = 6.0
"""All duties of a source and its flow, for what is committed while all is well."""
_SETTLED_S: Final = 45.0
"""From when faults stop: it has connected, doubted, and reset the app in every shard."""


class Row(ObjectPublisher):
    """Nobody publishes it: it is changed in the database."""

    world: SourcedWorld

    def change(self, author: ClientNode | None = None) -> None:
        """Now and then in one transaction with others."""
        world = self.world
        keys = [self.key]
        if world.dice.random() < 0.3:
            keys = world.dice.sample(world.objects, world.dice.randrange(1, len(world.objects) + 1))
        world.database.change(keys)
        if world.dice.random() < 0.2:
            world.database.idle()


class Bystander(ClientNode):
    """Wants nothing of the database."""

    kind = "bystander"
    of_app = app_of(ELSEWHERE)

    def want(self, key: Key) -> None:
        super().want(ELSEWHERE)


class SourcedWorld(World):
    source_apps = frozenset({APP})
    faults: ClassVar = {**NODE_FAULTS, **SOURCE_FAULTS}

    def __init__(self, tape: Tape) -> None:
        super().__init__(tape)
        self.source = SourceNode(self)
        self.late_flow = LateFlow(self)
        self.newest: dict[Key, int] = {}
        """The highest version of each row in any log of changes."""
        self.versions: dict[tuple[Key, int], int] = {}
        """Of each change the first."""
        self.highest: dict[Key, int] = {}
        """The highest stamp of each row that has a version."""
        self.read_again: set[Key] = set()
        """Rows of which a change stands in a log twice: what is told may go back by that."""
        self.bystander = Bystander(self, 0, [ELSEWHERE])
        self.clients.append(self.bystander)

    def make_objects(self) -> list[Key]:
        return [f"{APP}/{TABLE}/{i}" for i in range(self.swarm.objects)]

    def make_publishers(self, last_changes: dict[Key, float]) -> dict[Key, ObjectPublisher]:
        self.database = Database(self, self.objects)
        rows = {key: Row(self, key, last_changes.get(key, inf)) for key in self.objects}
        return {**rows, ELSEWHERE: ObjectPublisher(self, ELSEWHERE, inf)}

    def start(self) -> None:
        super().start()
        self.source.start()
        if self.tape.seed % 2:  # else it would make good what the direct flow forgets
            self.late_flow.run()

    def heal(self) -> None:
        self.database.heal()
        self.late_flow.rests_until = 0.0
        self.source.disk.heal()
        self.source.disk.cut_before_step = None
        super().heal()
        self.source.start_again()
        self.clock.run(self.clock.now + _SETTLED_S)

    def histories(self) -> Iterator[History]:
        return doubts.of(self.tape.seed)

    def change_rows(self) -> None:
        for key in self.objects:
            self.publishers[key].change()

    # Time.

    def known_within(self) -> float:
        return super().known_within() + _DUTIES_S

    # Versions, and what they stand for.

    def note_versions(self, entries: Iterable[tuple[int, Update]]) -> None:
        """As they stand in a log of changes, in its order."""
        oracle = self.oracle
        for _, update in entries:
            if update.reset:
                continue
            key, version, stamp = update.object, update.version, stamp_in(update)
            known = oracle.stamp_of.get((key, version))
            if known is not None and known != stamp:
                raise Violation(f"{key} {version} stands for two changes, {known} and {stamp}")
            if known is None:
                if version <= self.newest.get(key, NO_VERSION):
                    raise Violation(f"{key} {version} follows {self.newest[key]}: versions fell")
                self._note_again(key, version, stamp)
                self.newest[key] = version
                oracle.stamp_of[key, version] = stamp

    def _note_again(self, key: Key, version: int, stamp: int) -> None:
        earlier = self.versions.setdefault((key, stamp), version)
        self.highest[key] = max(self.highest.get(key, 0), stamp)
        if earlier == version and stamp == self.highest[key]:
            return
        self.read_again.add(key)
        again = ordinal_of(earlier) == ordinal_of(version) and earlier != version
        if again and stamp in self.database.whole and self.source.intact:
            raise Violation(f"change {stamp} of {key} came twice, and no doubt between")

    def acknowledge(self, updates: Sequence[Update], versions: Sequence[int]) -> None:
        now = self.clock.now
        for update, version in zip(updates, versions, strict=True):
            if version != NO_VERSION:
                self.acknowledged_updates.append(update)
                stamp = self.oracle.stamp_of[update.object, update.version]
                self.oracle.published(now, update.object, stamp)

    # Judgement.

    def look(self, key: Key) -> int:
        return self.database.seen.get(key, 0) if app_of(key) == APP else super().look(key)

    def check_told(self, who: str, key: Key, stamp: int) -> None:
        if app_of(key) == APP and self.look(key) < stamp:
            raise Violation(f"{who} was told change {stamp} of {key}, and sees {self.look(key)}")

    def keeps_order(self, key: Key, version: int) -> bool:
        """What came from beyond a gap is void if a reset was in it, and comes again in its turn."""
        early = self.oracle.sometimes["core: early"] or any(
            shard.matcher.counters["early"] for shard in self.shards
        )
        return self.vouches(key) and key not in self.read_again and not early

    def vouches(self, key: Key) -> bool:
        """What was read again, or is late, comes out of order; so with a part of the feed the
        higher version may be lost, and what is told then is an older one."""
        return not self.lost_history(key)

    def check_liveness(self, due: Callable[[AnyClient, Key], bool]) -> None:
        super().check_liveness(due)
        for client in self.everybody():
            for key in client.app.wanted:
                knows, holds = client.app.knows.get(key, 0), self.look(key)
                if app_of(key) == APP and due(client, key) and knows < holds:
                    raise Violation(
                        f"{client.name} knows change {knows} of {key}; the database holds {holds}"
                    )
