"""A client alone, with a test that plays its server: word by word, through the codec."""

from typing import TypeVar

from roskva.core.client import ClientConfig, ClientMachine
from roskva.core.effects import (
    ClientEvent,
    Connected,
    Deliver,
    Effect,
    Event,
    FromServer,
    OpenConnection,
    Register,
    SaveIdentity,
    Tick,
    Transmit,
)
from roskva.core.identity import Identity, pack_identity
from roskva.wire import codec
from roskva.wire.messages import (
    PROTOCOL,
    ClientMessage,
    FromClient,
    Grant,
    Hello,
    Operation,
    ServerMessage,
)

SESSION = 7
CLIENT_ID = b"c" * 16
TOKEN = b"token"
IDENTITY = pack_identity(Identity("app", CLIENT_ID, TOKEN))

E = TypeVar("E")


class LoneClient:
    def __init__(
        self, config: ClientConfig | None = None, identity: bytes | None = None, seed: int = 1
    ) -> None:
        self.now = 100.0
        self.core = ClientMachine(config or ClientConfig("app"), identity, seed, self.now)
        self.effects: list[Effect] = []
        """Everything so far."""
        self.sent: list[tuple[float, FromClient]] = []
        self.events: list[ClientEvent] = []

    def step(self, event: Event) -> list[Effect]:
        """Connections succeed at once."""
        effects = self.core.step(event, self.now)
        self.effects += effects
        for effect in effects:
            if isinstance(effect, Transmit):
                frame = codec.encode(effect.message)
                self.sent.append((self.now, codec.decode_from_client(frame)))
            elif isinstance(effect, Deliver):
                self.events.append(effect.event)
            elif isinstance(effect, OpenConnection):
                self.step(Connected())
        return effects

    def hear(self, **parts: object) -> list[Effect]:
        message = ServerMessage(PROTOCOL, **parts)  # type: ignore[arg-type]
        return self.step(FromServer(codec.decode_from_server(codec.encode(message))))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while (at := self.core.next_deadline()) is not None and at <= end:
            self.now = max(self.now, at)
            self.step(Tick())
        self.now = end

    def greet(self) -> None:
        """As far as a session: connect, hello, grant."""
        self.run(0.1)
        self.grant()

    def settle(self) -> None:
        """Until the first message of the session is answered."""
        self.greet()
        self.run(1)
        self.hear(session=SESSION)
        self.clear()

    def grant(self, session: int = SESSION, **parts: object) -> None:
        grant = Grant(CLIENT_ID, TOKEN, self.hellos()[-1].nonce)
        self.hear(session=session, grant=grant, **parts)

    def register(self, *keys: str) -> None:
        for key in keys:
            self.step(Register(key))

    def clear(self) -> None:
        self.effects, self.sent, self.events = [], [], []

    def hellos(self) -> list[Hello]:
        return [message for _, message in self.sent if isinstance(message, Hello)]

    def messages(self) -> list[ClientMessage]:
        return [message for _, message in self.sent if isinstance(message, ClientMessage)]

    def operation_times(self) -> list[float]:
        return [at for at, m in self.sent if isinstance(m, ClientMessage) and m.operations]

    def operations(self) -> list[Operation]:
        return [operation for message in self.messages() for operation in message.operations]

    def of_kind(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def saved(self) -> list[bytes | None]:
        return [effect.identity for effect in self.effects if isinstance(effect, SaveIdentity)]
