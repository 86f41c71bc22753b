"""An operator in the simulation, who resets an app and asks again until every shard has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roskva.model import START_OF_2025_S, next_generation
from roskva.simulation.clients import APP
from roskva.simulation.pipeline import STRAGGLERS
from roskva.wire.links import FromShard, ResetApp, UpdatesPublished

if TYPE_CHECKING:
    from roskva.simulation.shard import ShardNode
    from roskva.simulation.world import World

OTHER_APP: Final = "another"
"""Of which nobody wants anything: what its reset does, nobody may notice."""
_AGAIN: Final = 2.0
_HOUR: Final = 3600.0
"""A second of the simulation, to generations: time passes between a loss and the next reset."""


class Operator:
    def __init__(self, world: World) -> None:
        self.world = world
        self.generations: dict[str, set[int]] = {APP: {0}, OTHER_APP: {0}}
        """All that were ever begun."""
        self.busy = False
        self.went_back = False
        """The backend, before a reset: without that, clients would keep what is void."""

    def reset_when_quiet(
        self, goes_back: bool, patience: float = STRAGGLERS, overtaking: bool = False
    ) -> None:
        """The app that everybody uses. Its backend falls silent before, until no copy of an update
        is under way any more: after the reset that would be news. It may go back in time, too.

        `overtaking`: the shards have missed the last changes before it."""
        publishers = self.world.publishers.values()
        if self.busy or any(publisher.busy_resetting for publisher in publishers):
            return
        self.busy = True
        for publisher in publishers:
            publisher.resetting = True
        self.world.clock.after(patience, lambda: self._when_idle(goes_back, overtaking))

    def _when_idle(self, goes_back: bool, overtaking: bool) -> None:
        if self.publishing():
            self.world.clock.after(0.5, lambda: self._when_idle(goes_back, overtaking))
        else:
            AppReset(self, APP, goes_back, overtaking)

    def publishing(self) -> bool:
        return any(publisher.in_flight for publisher in self.world.publishers.values())

    def reset_other(self) -> None:
        if not self.busy:
            self.busy = True
            AppReset(self, OTHER_APP)

    def done(self, app: str, overtaking: bool) -> None:
        """After one that overtook something everybody publishes at once: all of it is in one range
        of the feed that the shards have not read."""
        self.busy = False
        self.world.seen(f"{app} reset")
        for publisher in self.world.publishers.values() if app == APP else ():
            publisher.resetting = False
            if overtaking:
                publisher.change_if_idle(for_the_last_time=self.world.dice.random() < 0.5)


class AppReset:
    """One reset of an app: which generation is next, and then until all have it."""

    def __init__(
        self, operator: Operator, app: str, goes_back: bool = False, overtaking: bool = False
    ) -> None:
        self.operator, self.world, self.app = operator, operator.world, app
        self.goes_back, self.overtaking = goes_back, overtaking
        self.generation = 0
        self.stamps: dict[str, int] = {}
        self.answers: dict[int, int] = {}
        self._ask()

    def _ask(self) -> None:
        world = self.world
        if len(self.answers) == len(world.shards):
            if self.generation:
                self.operator.done(self.app, self.overtaking)
            elif self.overtaking and not world.healed:
                self._change_unseen()
            else:
                self._begin()
            return
        for shard in world.shards:
            if shard.index not in self.answers and shard.alive:
                # Whoever is asked twice at once has to append it once, and never an older one.
                for _ in range(world.dice.choice((1, 1, 2))):
                    self._send(shard, self.generation)
                if not world.healed:  # somebody else, who began earlier and is late
                    self._send(shard, max(0, self.generation - 1))
        world.clock.after(_AGAIN * world.dice.random(), self._ask)

    def _change_unseen(self) -> None:
        for shard in self.world.shards:
            shard.fast_path_loss = 1.0
        for publisher in self.world.publishers.values():
            publisher.change()
        self.world.clock.after(0.3, self._overtake)

    def _overtake(self) -> None:
        world = self.world
        for shard in world.shards:
            shard.hand_over_as_usual()
        if self.operator.publishing():
            world.clock.after(STRAGGLERS, self._overtake)
        else:
            self._begin()

    def _begin(self) -> None:
        world, oracle, operator = self.world, self.world.oracle, self.operator
        wall_s = START_OF_2025_S + world.clock.now * _HOUR
        self.generation = next_generation(self.answers.values(), wall_s)
        operator.generations[self.app] |= {self.generation, self.generation - 1}
        operator.went_back = operator.went_back or self.goes_back
        for publisher in world.publishers.values() if self.goes_back else ():
            publisher.go_back()
        self.answers = {}
        if self.app == APP:
            self.stamps = {key: oracle.change(key, None) for key in world.objects}
        self._ask()

    def _send(self, shard: ShardNode, generation: int) -> None:
        def answered(told: FromShard) -> None:
            if isinstance(told, UpdatesPublished) and wanted == self.generation:
                self._has(shard, told.versions[0])

        wanted = self.generation
        message = ResetApp(1, self.app, generation)
        shard.later(self.world.net.delay(), lambda: shard.ask(message, answered))

    def _has(self, shard: ShardNode, generation: int) -> None:
        if generation < self.generation:
            return
        self.answers[shard.index] = generation
        for key, stamp in self.stamps.items():
            if self.world.shard_of(key) is shard:
                self.world.oracle.published(self.world.clock.now, key, stamp)
