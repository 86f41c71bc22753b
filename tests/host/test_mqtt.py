"""What one MQTT client is sent, by the machine alone: any order of telling, acking and lagging."""

import pickle

from hypothesis import given
from hypothesis import strategies as st
from tests.channels.mqtt_side import EPOCH, Told, puback, split

from roskva.core.effects import Acked, Drained, Event, Lagging
from roskva.host.delivery import Announcement
from roskva.host.mqtt import Acks, MqttDelivery, Notice, PublishEncoder
from roskva.wire.messages import PROTOCOL, Notification, ServerMessage
from roskva.wire.mqtt.codes import V3

KEYS = ["app/a", "app/b", "app/c"]

Version = tuple[str, int]


class FewIds(PublishEncoder):
    """Proposes an id again while it may be in flight."""

    __slots__ = ("ids",)
    ids: int

    def __call__(self, notification: Notification) -> Notice:
        self._last %= self.ids
        return super().__call__(notification)


class Client:
    """Reads what is written, and acks in whatever order."""

    def __init__(self, window: int = 4, ids: int = 3) -> None:
        self.window = window
        self.acks = Acks()
        self.encode = FewIds(V3)
        self.encode.ids = ids
        self.delivery = MqttDelivery(self.encode, self.acks)
        self.delivery.address = 5
        self.delivery.begin(window, 1 << 20, resumed=False)
        for key in KEYS:
            self.delivery.subscribed(key, 1, send_current=True)
            self.delivery.settled(key, True)
        self.in_flight: dict[int, Version] = {}
        self.unheard: set[Version] = set()
        """Acked, and the core is still to hear of it."""
        self.paused = False
        self.events: list[Event] = []

    def notify(self, key: str, version: int, step: int) -> None:
        message = ServerMessage(PROTOCOL, notifications=[Notification(key, version, EPOCH)])
        announcement = Announcement(message, step)
        left_out = self.delivery.notify(announcement)
        for write in announcement.writes():
            assert not self.paused, "it would overtake what waits in the transport"
            assert write.addresses == [5]
            self.read(write.data)
        self.note(left_out)
        if left_out is None and self.lagging is None:
            known = self.unheard | set(self.in_flight.values())
            assert (key, version) in known, "left out, and nobody was told"

    def tell(self, key: str, version: int) -> None:
        message = ServerMessage(PROTOCOL, notifications=[Notification(key, version, EPOCH)])
        packets, left_out = self.delivery.tell(message)
        self.read(b"".join(packet for _, packet in packets))
        self.note(left_out)

    def read(self, data: bytes) -> None:
        for packet in split(data):
            told = Told(packet, V3)
            sent = (told.topic, int(told.payload))
            assert told.id not in self.in_flight, "an id in use"
            assert sent not in self.in_flight.values(), "sent twice"
            assert sent not in self.unheard, "sent again although it is acked"
            self.in_flight[told.id] = sent
        assert len(self.in_flight) <= self.window

    def ack(self, *places: int) -> None:
        ids = [id for place, id in enumerate(self.in_flight) if place in places]
        if ids:
            self.unheard |= {self.in_flight.pop(id) for id in ids}
            assert self.delivery.acked(b"".join(map(puback, ids))) == b""

    def hear(self) -> None:
        """The core hears of acks."""
        for event in self.acks.take():
            self.note(event)
            if isinstance(event, Acked):
                assert {(key, version) for key, version, _ in event.acks} == self.unheard
                assert all(by == [self.delivery] for by in event.acks.values())
                self.unheard.clear()
        assert not self.unheard

    def pause(self) -> None:
        if not self.paused:
            self.paused = True
            self.note(self.delivery.pause())

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            self.note(self.delivery.resume())

    def note(self, event: Event | None) -> None:
        if event is not None:
            self.events.append(event)

    @property
    def lagging(self) -> Lagging | None:
        """As the core sees it."""
        for event in reversed(self.events):
            if isinstance(event, Lagging):
                return event
            if isinstance(event, Drained):
                return None
        return None


VERSIONS = st.tuples(st.sampled_from(KEYS), st.integers(1, 4))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("notify"), VERSIONS),
        st.tuples(st.just("notify"), VERSIONS),
        st.tuples(st.just("tell"), VERSIONS),
        st.tuples(st.just("ack"), st.sets(st.integers(0, 3), min_size=1)),
        st.tuples(st.sampled_from(["hear", "pause", "resume", "put away"]), st.none()),
    ),
    max_size=60,
)


def play(steps: list[tuple[str, object]], window: int, ids: int) -> Client:
    client = Client(window, ids)
    for number, step in enumerate(steps, 1):
        match step:
            case ("notify", (str() as key, int() as version)):
                client.notify(key, version, number)
            case ("tell", (str() as key, int() as version)):
                client.tell(key, version)
            case ("ack", set() as places):
                client.ack(*places)
            case ("put away", _):
                client = pickle.loads(pickle.dumps(client))
            case (str() as name, _):
                getattr(client, name)()
    return client


@given(STEPS, st.sampled_from([1, 2, 4]), st.sampled_from([1, 3]))
def test_nothing_is_sent_twice_or_left_out_in_silence(
    steps: list[tuple[str, object]], window: int, ids: int
) -> None:
    client = play(steps, window, ids)
    client.resume()
    while client.in_flight:
        client.ack(*range(window))
        client.hear()
    client.hear()
    assert client.lagging is None, "nobody would ever hear that it has drained"
    client.notify(KEYS[0], 9, 1000)
    assert client.in_flight, "the short way is open again"


def test_the_short_way_and_the_long_way_send_the_same_packet() -> None:
    short, long = Client(), Client()
    long.delivery.unsubscribed("app/d")
    for client in (short, long):
        client.notify("app/a", 1, 1)
        client.notify("app/b", 1, 2)
    assert short.in_flight == long.in_flight


def announced(version: int, key: str = KEYS[0]) -> Announcement:
    message = ServerMessage(PROTOCOL, notifications=[Notification(key, version, EPOCH)])
    return Announcement(message, version)


def begun(encode: PublishEncoder, acks: Acks, window: int = 10) -> MqttDelivery:
    delivery = MqttDelivery(encode, acks)
    delivery.begin(window, 1 << 20, resumed=True)
    return delivery


def test_acks_of_one_notice_may_reach_the_core_at_different_times() -> None:
    acks, encode = Acks(), PublishEncoder(V3)
    one, other = begun(encode, acks), begun(encode, acks)
    announcement = announced(1)
    for delivery in (one, other):
        delivery.notify(announcement)
    for delivery in (one, other):
        assert delivery.acked(puback(1)) == b""
        (event,) = acks.take()
        assert event == Acked({(KEYS[0], 1, EPOCH): [delivery]})
        assert acks.count == 0


def test_who_has_lagged_once_says_so_the_next_time_too() -> None:
    delivery = begun(PublishEncoder(V3), acks := Acks(), window=1)
    for version in (1, 3):
        assert delivery.notify(announced(version)) is None
        assert delivery.notify(announced(version + 1)) == Lagging(delivery, version + 1)
        delivery.acked_id(version)
        assert [type(event) for event in acks.take()] == [Acked, Drained]


def test_beside_a_topic_of_qos_0_the_others_are_looked_up() -> None:
    delivery = begun(PublishEncoder(V3), acks := Acks())
    delivery.subscribed("app/a", 0, send_current=True)
    delivery.unsubscribed("app/c")
    delivery.notify(first := announced(1, "app/b"))
    assert first.writes()
    delivery.acked_id(1)
    assert [*acks.take()]
    delivery.notify(second := announced(1, "app/a"))
    ((_, packet),) = second.own
    assert Told(packet, V3).qos == 0


def test_a_current_version_that_did_not_fit_is_retained_when_it_is_sent() -> None:
    delivery = begun(PublishEncoder(V3), Acks(), window=1)
    delivery.notify(announced(1, "app/b"))
    delivery.subscribed("app/a", 1, send_current=True)
    assert delivery.tell(announced(1).message) == ([], Lagging(delivery, 0))
    delivery.acked_id(1)
    ((told, packet),), _ = delivery.tell(announced(1).message)
    assert (told.object, Told(packet, V3).retain) == ("app/a", 1)
