"""The same bytes to many connections, where possible with one system call for all of them.

What many are told goes straight to their sockets: there and back through a transport's buffer costs
a tenth of a whole delivery. What a socket does not take at once waits in its transport, which also
knows what to do if it is broken. What is encrypted, or has no socket, goes through its transport.

Linux takes a list of writes at once, `io_submit`, which was made for files. Given sockets that do
not block, it does each write before it returns, and `io_getevents` then says what became of them.
That spares a delivery the way into the kernel and back, and leaves the interpreter's lock to other
threads for all of them once instead of for each.

libc has no functions for these calls, so they are made by their numbers.
"""

import asyncio
import ctypes
import logging
import os
import platform
import socket
import weakref
from array import array
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

TLS_HIGH_WATER_BYTES: Final = 8 * 1024
TLS_LOW_WATER_BYTES: Final = 2 * 1024
MOST_AT_ONCE: Final = 250
"""Writes in one call."""
_FEW: Final = 8
"""Up to here, calls of their own cost less than to prepare one for all."""
_NO_SOCKET: Final = -2
"""This number and those below it are of transports that are written to through their buffers."""

Short = list[tuple[int, int]]
"""Who did not take all of it: its place among the sockets, and how much it took."""
WriteSockets = Callable[[Sequence[int], bytes], Short]
"""To at most `MOST_AT_ONCE` of them."""

_NUMBERS: Final = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
"""Of io_setup, io_destroy, io_getevents and io_submit."""
_CONTROL_BLOCK: Final = Struct("<QIIHhIQQqQII")
"""data, key, flags, opcode, priority, socket, address, length, offset, unused, flags, notify."""
_WRITE: Final = 1
_POINTER_BYTES: Final = 8
_EVENT: Final = Struct("<QQqq")
"""data, control block, result, unused."""

_log = logging.getLogger(__name__)


class Writer:
    """Of a process: it numbers the transports that it is given, by their sockets if it can."""

    def __init__(self, write: WriteSockets | None = None) -> None:
        self._write = write or best_write()
        self._transports: dict[int, asyncio.Transport] = {}
        self._behind: set[int] = set()
        """Sockets that did not take all of something: the rest may be in their transports still,
        and nothing must get there before it."""
        self._last = _NO_SOCKET + 1

    def enter(self, transport: asyncio.Transport) -> int:
        """The address to write to it by, until it is lost and has to `leave`.

        A transport that holds anything back says so by `pause_writing`.
        """
        address = _NO_SOCKET
        if transport.get_extra_info("ssl_object") is not None:
            # It holds back what is being encrypted, and would pause at each write.
            transport.set_write_buffer_limits(TLS_HIGH_WATER_BYTES, TLS_LOW_WATER_BYTES)
        else:
            transport.set_write_buffer_limits(0)
            peer = transport.get_extra_info("socket")
            if peer is not None:
                address = peer.fileno()
        if address < 0:
            self._last -= 1
            address = self._last
        self._transports[address] = transport
        return address

    def leave(self, address: int) -> None:
        """Before the number of its socket is another's."""
        self._transports.pop(address, None)
        self._behind.discard(address)

    def write(self, addresses: Sequence[int], data: bytes) -> None:
        if self._behind or min(addresses, default=0) < 0:
            addresses = self._through_transports(addresses, data)
        for at in range(0, len(addresses), MOST_AT_ONCE):
            sockets = (
                addresses[at : at + MOST_AT_ONCE] if len(addresses) > MOST_AT_ONCE else addresses
            )
            for place, taken in self._write(sockets, data):
                transport = self._transports.get(sockets[place])
                if transport is not None:
                    self._behind.add(sockets[place])
                    transport.write(data[taken:])

    def _through_transports(self, addresses: Sequence[int], data: bytes) -> list[int]:
        """To those for whom this is the way; the others are left."""
        behind, left = self._behind, list[int]()
        for address in addresses:
            if address >= 0 and (address not in behind or self._has_drained(address)):
                left.append(address)
            elif address in self._transports:
                self._transports[address].write(data)
        return left

    def _has_drained(self, socket: int) -> bool:
        if self._transports[socket].get_write_buffer_size():
            return False
        self._behind.discard(socket)
        return True


def best_write() -> WriteSockets:
    try:
        together = WriteTogether()
        _try_out(together)
    except OSError as error:
        _log.info("clients are written to one by one: %s", error)
        return write_one_by_one
    return together


def _try_out(write: WriteSockets) -> None:
    """A kernel may have the calls, and not for sockets."""
    one, other = socket.socketpair()
    with one, other:
        one.setblocking(False)
        if write([one.fileno()] * (_FEW + 1), b"?"):
            raise OSError("io_submit does not write to sockets here")


def write_one_by_one(sockets: Sequence[int], data: bytes) -> Short:
    short: Short = []
    for place, number in enumerate(sockets):
        try:
            taken = os.write(number, data)
        except OSError:
            taken = 0
        if taken != len(data):
            short.append((place, taken))
    return short


class WriteTogether:
    """Of one thread: what it prepares for the kernel is kept and used again."""

    def __init__(self) -> None:
        known = platform.system() == "Linux" and platform.machine() in _NUMBERS
        if not known or ctypes.sizeof(ctypes.c_void_p) != _POINTER_BYTES:
            raise OSError("there is no io_submit here")
        setup, destroy, self._get_events, self._submit = map(
            ctypes.c_long, _NUMBERS[platform.machine()]
        )
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._context = ctypes.c_ulong()
        if self._call(setup, ctypes.c_long(MOST_AT_ONCE), ctypes.byref(self._context)) != 0:
            raise OSError(ctypes.get_errno(), "io_setup failed")
        weakref.finalize(self, self._call, destroy, self._context)

        blocks = ctypes.create_string_buffer(MOST_AT_ONCE * _CONTROL_BLOCK.size)
        first = ctypes.addressof(blocks)
        for place in range(MOST_AT_ONCE):
            at = place * _CONTROL_BLOCK.size
            _CONTROL_BLOCK.pack_into(blocks, at, place, 0, 0, _WRITE, 0, 0, 0, 0, 0, 0, 0, 0)
        self._blocks = (ctypes.c_void_p * MOST_AT_ONCE)(
            *range(first, first + len(blocks), _CONTROL_BLOCK.size)
        )
        # The same field of all blocks, one after the other.
        self._sockets = memoryview(blocks).cast("B").cast("i")[5::16]
        self._addresses = memoryview(blocks).cast("B").cast("Q")[3::8]
        self._lengths = memoryview(blocks).cast("B").cast("Q")[4::8]

        self._events = ctypes.create_string_buffer(MOST_AT_ONCE * _EVENT.size)
        self._places = memoryview(self._events).cast("B").cast("Q")[0::4]
        self._results = memoryview(self._events).cast("B").cast("q")[2::4]

    def __call__(self, sockets: Sequence[int], data: bytes) -> Short:
        if len(sockets) <= _FEW:
            return write_one_by_one(sockets, data)
        count = len(sockets)
        address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
        self._sockets[:count] = array("i", sockets)
        self._addresses[:count] = array("Q", [address or 0]) * count
        self._lengths[:count] = array("Q", [len(data)]) * count
        short: Short = []
        begun = 0
        while begun < count:
            blocks = ctypes.byref(self._blocks, begun * _POINTER_BYTES)
            done = self._call(self._submit, self._context, ctypes.c_long(count - begun), blocks)
            if done > 0:
                short += self._outcome(done, len(data))
                begun += done
            else:  # the next one is not to be written to, and was not
                short.append((begun, 0))
                begun += 1
        return short

    def _outcome(self, count: int, length: int) -> Short:
        wanted = ctypes.c_long(count)
        found = self._call(
            self._get_events, self._context, wanted, wanted, self._events, ctypes.c_void_p()
        )
        if found != count:  # nobody knows what was written to whom
            raise OSError(ctypes.get_errno(), f"io_getevents knows of {found} writes, not {count}")
        results = self._results[:count].tolist()
        if results.count(length) == count:
            return []
        return [
            (place, max(0, taken))
            for place, taken in zip(self._places[:count].tolist(), results, strict=True)
            if taken != length
        ]
