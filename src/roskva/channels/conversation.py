"""One client's side of the protocol, message by message, whatever carries them.

A message is read, whoever says hello is identified, and what is no message of ours is refused, and
not for long. A channel calls `_message` with each and gives `send` and `_hang_up`.
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Final

from roskva.channels.base import Gateway
from roskva.errors import BadMessage, RoskvaError, Unauthorised, WrongProtocol
from roskva.host.delivery import MessageDelivery
from roskva.model import NOBODY, Principal
from roskva.wire.codec import Format, decode_from_client
from roskva.wire.messages import PROTOCOL, Hello, Notification, ServerError, ServerMessage

MAX_BAD_MESSAGES: Final = 10
"""A client that sends more of what is no message is not one of ours."""


class Conversation:
    __slots__ = ("_bad", "_credential", "_format", "_front", "_identifying", "delivery")

    def __init__(self, front: Gateway, delivery: MessageDelivery) -> None:
        self._front = front
        self.delivery = delivery
        self._format: Format = "msgpack"
        self._credential: str | None = None
        """That its connection has shown; a hello may bring another."""
        self._identifying = False
        self._bad = 0

    @abstractmethod
    def send(self, message: ServerMessage) -> Sequence[Notification]: ...

    @abstractmethod
    def _hang_up_on(self, error: RoskvaError) -> None:
        """On a client that has been told of it."""

    def _said_hello(self) -> None:
        """From now on it is the core that watches whether it gets on."""

    def _certificate(self) -> str | None:
        """The name in the one that its connection has shown, if any."""
        return None

    def _address_counted(self) -> str:
        """By which its connection is counted, if it is."""
        return ""

    def _message(self, payload: bytes) -> None:
        try:
            message = decode_from_client(payload, self._format)
        except RoskvaError as error:
            self._refuse(error)
            return
        if type(message) is Hello:
            self._said_hello()
            if message.app is not None:
                self._identify(message.app, message)
            else:
                self._identified(message, NOBODY)  # its token says who it is
        else:
            self._front.received(self.delivery, NOBODY, message)

    def _identify(self, app: str, hello: Hello) -> None:
        if self._identifying:
            self._refuse(BadMessage("a second hello before the first was answered"))
            return
        self._identifying = True
        credential = hello.credential or self._credential
        answered = partial(self._identified, hello)
        self._front.identify(app, credential, self._certificate(), answered)

    def _identified(self, hello: Hello, found: Principal | RoskvaError) -> None:
        self._identifying = False
        if isinstance(found, RoskvaError):
            self._refuse(found)
        elif found.key:
            self._refuse(Unauthorised("a publish key is for publishing: clients show a JWT"))
        else:
            self._front.received(self.delivery, found.at(self._address_counted()), hello)

    def _refuse(self, error: RoskvaError) -> None:
        """Drop the message and say so; nothing else has happened."""
        self._bad += 1
        self.send(ServerMessage(PROTOCOL, error=ServerError(error.code, str(error)[:1024])))
        if isinstance(error, WrongProtocol) or self._bad >= MAX_BAD_MESSAGES:
            self._hang_up_on(error)
