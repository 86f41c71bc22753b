"""One direction of a connection: the bytes of the real codec, in order, until a test interferes."""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from roskva.errors import BadMessage

M = TypeVar("M")

_END = b""


class Wire(Generic[M]):
    def __init__(
        self,
        encode: Callable[[M], bytes],
        decode: Callable[[bytes], M],
        arrive: Callable[[M], None],
    ) -> None:
        self._encode, self._decode, self._arrive = encode, decode, arrive
        self.frames: deque[bytes] = deque()
        """On their way. A test may drop, repeat or reorder them."""
        self.held = False
        """Nothing arrives for now."""
        self.lossy: Callable[[], bool] = lambda: False
        """Asked for every message: is it lost?"""
        self.dropped = 0
        """Frames that were no message, and were left out by the receiver."""
        self.at_end: Callable[[], None] = lambda: None

    def put(self, message: M) -> None:
        self.put_frame(self._encode(message))

    def put_frame(self, frame: bytes) -> None:
        if not self.lossy():
            self.frames.append(frame)

    def end(self) -> None:
        """Closed by the sender, after everything that is on its way."""
        self.frames.append(_END)

    def backlog(self) -> int:
        return sum(map(len, self.frames))

    def carry(self) -> bool:
        """Let one frame arrive; False if none can."""
        if self.held or not self.frames:
            return False
        frame = self.frames.popleft()
        if frame == _END:
            self.at_end()
            return True
        try:
            message = self._decode(frame)
        except BadMessage:
            self.dropped += 1
        else:
            self._arrive(message)
        return True
