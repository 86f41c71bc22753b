"""The commands of a scenario script: one method each, with its use in the docstring.

A command acts at once; only `run` and `settle` let time pass.
"""

import re
from collections import Counter
from collections.abc import Callable
from typing import Final

from tests.scenarios.client import APP, ClientNode
from tests.scenarios.cluster import KINDS, Cluster, Node, ScriptError, Settings
from tests.scenarios.registrar import RegistrarNode
from tests.scenarios.shard import ShardNode

from roskva.core.backoff import Rate
from roskva.model import Key, Update, parse_key, reset_mark, shard_of
from roskva.store import rows as layout

_DURATION = re.compile(r"(\d+)(ms|s|m|h)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

Options = dict[str, str]


class Play:
    """One scenario being played."""

    def __init__(self) -> None:
        self.cluster: Cluster | None = None
        self.nodes: dict[str, Node] = {}
        self.herd: list[ClientNode] = []
        self.herd_since = 0.0

    def perform(self, line: str) -> None:
        words, options = _parse(line)
        command = getattr(self, "do_" + words[0].replace("-", "_"), None)
        if command is None:
            raise ScriptError(f"no such command: {words[0]}")
        if self.cluster is None and words[0] != "cluster":
            raise ScriptError("a scenario begins with a cluster")
        try:
            command(*words[1:], **{name.replace("-", "_"): v for name, v in options.items()})
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            raise ScriptError(f"{line!r}: {error}") from None

    def output(self) -> list[str]:
        return self._cluster.trace.take() if self.cluster else []

    def finish(self) -> None:
        """A script must tell its story to the end."""
        if self.cluster is None:
            return
        self.cluster.run(2.0)
        left = self.output()
        if left:
            raise ScriptError("\n".join(["the script ends while things still happen:", *left]))
        if self.cluster.wires.held:
            raise ScriptError("the script ends with messages held")

    # Setting up.

    def do_cluster(
        self,
        *,
        clients: str,
        registrars: str = "r1",
        shards: str = "1",
        handshakes: str = "1000/1s",
        trace: str = ",".join(KINDS),
    ) -> None:
        """cluster clients=alice,bob registrars=r1,r2 shards=1 handshakes=5/1s trace=clients,links

        Shards and registrars start; clients wait for `start`. A client prefers the registrar at its
        own place in the list, and takes the next one that runs.
        """
        count, _, window = handshakes.partition("/")
        rate = Rate(int(count), int(_seconds(window) * 1000))
        cluster = self.cluster = Cluster(Settings(int(shards), rate))
        self.do_trace(trace)
        names = ["shard"] if shards == "1" else [f"shard-{i}" for i in range(int(shards))]
        self.shards = [ShardNode(cluster, name, i) for i, name in enumerate(names)]
        self.registrars = [
            RegistrarNode(cluster, name, self.shards) for name in registrars.split(",")
        ]
        for node in [*self.shards, *self.registrars]:
            self.nodes[node.name] = node
            node.start()
        for i, name in enumerate(clients.split(",")):
            self._add_client(name, i)

    def do_trace(self, kinds: str) -> None:
        """trace clients,links,storage | trace nothing: what to tell of from here on"""
        if not set(kinds.split(",")) <= {*KINDS, "nothing"}:
            raise ScriptError(f"a trace is of {', '.join(KINDS)}, or nothing")
        self._cluster.trace.kinds = frozenset(kinds.split(",")) & frozenset(KINDS)

    def _add_client(self, name: str, place: int) -> ClientNode:
        start = place % len(self.registrars)
        order = self.registrars[start:] + self.registrars[:start]
        client = self.nodes[name] = ClientNode(self._cluster, name, order)
        return client

    # Time.

    def do_run(self, duration: str) -> None:
        """run 5s"""
        self._cluster.run(_seconds(duration))

    def do_settle(self) -> None:
        """settle: until nothing has been said for three seconds"""
        self._cluster.settle()

    # Clients and their applications.

    def do_start(self, name: str, *, acks: str = "") -> None:
        """start alice [acks=at-once]: with the identity it has kept, if any"""
        client = self._client(name)
        client.acks_at_once = acks == "at-once"
        client.start()

    def do_register(self, name: str, key: str, *, version: str | None = None) -> None:
        """register alice contacts/carol [version=41]"""
        self._client(name).register(self._key(key), None if version is None else int(version))

    def do_unregister(self, name: str, key: str) -> None:
        """unregister alice contacts/carol"""
        self._client(name).unregister(self._key(key))

    def do_ack(self, name: str) -> None:
        """ack alice: all that her application was told"""
        self._client(name).ack()

    def do_disconnect(self, name: str) -> None:
        """disconnect alice: her device loses its network"""
        self._client(name).lose_network()

    def do_reconnect(self, name: str) -> None:
        """reconnect alice: the device says that it is online again"""
        self._client(name).regain_network()

    def do_slow(self, name: str) -> None:
        """slow alice: reads nothing from here on"""
        self._client(name).reads_slowly = True

    def do_drain(self, name: str) -> None:
        """drain alice: reads again"""
        self._client(name).read_again()

    def do_second_login(self, name: str, as_name: str, *, at: str) -> None:
        """second-login alice alice-2 at=r2: another instance starts with a copy of her identity"""
        first = self._client(name)
        places = [registrar.name for registrar in self.registrars]
        if at not in places:
            raise ScriptError(f"there is no registrar {at}")
        second = self._add_client(as_name, places.index(at))
        second.identity, second.application = first.identity, first.application
        second.wanted = dict(first.wanted)
        second.start()

    # Publishing.

    def do_publish(
        self, key: str, versions: str, *, source: str | None = None, payload: str | None = None
    ) -> None:
        """publish contacts/carol 42 [source=alice] [payload=hello]; or 43..45, one after another"""
        first, _, last = versions.partition("..")
        for version in range(int(first), int(last or first) + 1):
            hint = None if payload is None else payload.encode()
            self._shard_of(key).publish(Update(self._key(key), version, source, hint))

    def do_reset(self, key: str) -> None:
        """reset contacts/carol"""
        mark = reset_mark(self._cluster.dice.getrandbits(64))
        self._shard_of(key).publish(Update(self._key(key), mark, reset=True))

    # Faults.

    def do_crash(self, name: str) -> None:
        """crash r1 | crash shard | crash alice: memory is gone, disks stay"""
        self._node(name).crash()

    def do_restart(self, name: str) -> None:
        """restart r1 | restart shard"""
        self._node(name).start()

    def do_hold(self, wire: str) -> None:
        """hold r1>alice: what is sent on this wire waits"""
        self._cluster.wires.hold(_ends(wire))

    def do_release(self, wire: str) -> None:
        """release r1>alice: what waits arrives, in order"""
        self._cluster.wires.release(_ends(wire))

    def do_lose(self, what: str, *, up_to: str | None = None) -> None:
        """lose feed [up-to=2] | lose everything | lose r1>alice: what is held there"""
        if ">" in what:
            self._cluster.wires.lose(_ends(what))
            self._break_link(set(_ends(what)))
        elif what == "feed" and up_to is not None:
            self.shards[0].feed.forget_up_to(int(up_to))
        elif what == "feed":
            self.shards[0].lose_feed()
        elif what == "everything":
            for node in [*self.registrars, *self.shards]:
                node.crash()
            for shard in self.shards:
                shard.lose_feed()
                shard.lose_store()
        else:
            raise ScriptError(f"{what} cannot be lost")

    def _break_link(self, ends: set[str]) -> None:
        """A link is reliable while it is up: one that has lost a message is not."""
        for registrar in self.registrars:
            for link in list(registrar.links.values()):
                if {registrar.name, link.shard.name} == ends:
                    link.break_off()

    def do_snapshot(self) -> None:
        """snapshot: the shard's store is copied"""
        self.shards[0].take_snapshot()

    def do_restore(self) -> None:
        """restore: the copy comes back, on a shard that is down"""
        self.shards[0].restore()

    # A herd.

    def do_herd(self, count: str, key: str) -> None:
        """herd 20 contacts/carol: so many clients start at once; they are told of by `show herd`"""
        self.herd = [self._add_client(f"h{i + 1}", 0) for i in range(int(count))]
        self._cluster.trace.muted = {client.name for client in self.herd}
        for client in self.herd:
            client.wanted[self._key(key)] = None
            client.acks_at_once = True
            client.start()

    # Showing.

    def do_show(self, what: str) -> None:
        """show store | show feed | show herd"""
        show: dict[str, Callable[[], list[str]]] = {
            "store": self._show_store,
            "feed": self._show_feed,
            "herd": self._show_herd,
        }
        if what not in show:
            raise ScriptError(f"{what} cannot be shown")
        self._cluster.trace.lines += show[what]()

    def _show_store(self) -> list[str]:
        notation, lines = self._cluster.notation, []
        for shard in self.shards:
            for row, cells in shard.store.scan():
                if row == layout.SHARD_ROW:
                    kept = layout.shard_row(cells)
                    lines += [] if kept is None else [notation.write(kept)]
                elif row.startswith(layout.OBJECT):
                    key = layout.object_of(row)
                    read = shard.store.read_cells(layout.object_cells([key]))
                    lines.append(notation.loaded(layout.object_rows([key], read)))
                elif row.startswith(layout.CLIENT):
                    client = notation.client(layout.client_of(row))
                    lines.append(f"{client} {notation.loaded(layout.client_row(cells))}")
        return lines

    def _show_feed(self) -> list[str]:
        notation = self._cluster.notation
        return [
            f"{notation.place(shard.feed.lineage, offset)} {notation.update(update)}"
            for shard in self.shards
            for offset, update in enumerate(shard.feed.updates, start=shard.feed.start + 1)
        ]

    def _show_herd(self) -> list[str]:
        """Per second since it was last shown: how many said hello, were let in, were notified."""
        counts = {name: Counter[int]() for name in ("hello", "granted", "notified")}
        for client in self.herd:
            moments = (client.greeted_at, client.granted_at, client.notified_at)
            for counter, times in zip(counts.values(), moments, strict=True):
                counter.update(int(time - self.herd_since) for time in times)
                times.clear()
        seconds = range(max((max(c, default=-1) for c in counts.values()), default=-1) + 1)
        lines = [
            f"second {second:>3}  "
            + "  ".join(f"{name} {counter[second]:>3}" for name, counter in counts.items())
            for second in seconds
            if any(counter[second] for counter in counts.values())
        ]
        self.herd_since = self._cluster.clock.now
        return lines

    # Looking up.

    @property
    def _cluster(self) -> Cluster:
        assert self.cluster is not None
        return self.cluster

    def _node(self, name: str) -> Node:
        if name not in self.nodes:
            raise ScriptError(f"there is no {name}")
        return self.nodes[name]

    def _client(self, name: str) -> ClientNode:
        node = self._node(name)
        if not isinstance(node, ClientNode):
            raise ScriptError(f"{name} is not a client")
        return node

    def _key(self, text: str) -> Key:
        if parse_key(text).app != APP:
            raise ScriptError(f"objects of a scenario are in the app {APP}")
        self._cluster.notation.objects[text] = None
        return text

    def _shard_of(self, key: str) -> ShardNode:
        return self.shards[shard_of(key, len(self.shards))]


def _parse(line: str) -> tuple[list[str], Options]:
    words: list[str] = []
    options: Options = {}
    for word in line.split():
        name, equals, value = word.partition("=")
        if equals:
            options[name] = value
        else:
            words.append(word)
    return words, options


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ScriptError(f"{text!r} is not a duration such as 500ms, 5s, 20m")
    return int(match[1]) * _UNITS[match[2]]


def _ends(wire: str) -> tuple[str, str]:
    sender, arrow, receiver = wire.partition(">")
    if not arrow:
        raise ScriptError(f"a wire is written r1>alice; got {wire}")
    return sender, receiver
