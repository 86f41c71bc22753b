"""A client of rows: `listening.py URL APP PREFIX COUNT` registers for so many, says "listening".

For each line on standard input it then says which notifications have come since the last one: when
their statement ran and when they came, in wall-clock microseconds, as JSON."""

import asyncio
import sys
import time
from typing import Final

import msgspec

import roskva

_AT_ONCE: Final = 100


class Row(msgspec.Struct):
    sent_us: int


_read: Final = msgspec.json.Decoder(Row).decode


async def listen(url: str, app: str, prefix: str, count: int) -> None:
    found: list[tuple[int, int]] = []
    async with roskva.Client(url, app=app, auto_ack=True) as client:
        for first in range(0, count, _AT_ONCE):
            rows = range(first, min(count, first + _AT_ONCE))
            await asyncio.gather(*(client.register(f"{prefix}{row}") for row in rows))

        async def note() -> None:
            async for event in client:
                if isinstance(event, roskva.Notify) and event.payload:
                    found.append((_read(event.payload).sent_us, time.time_ns() // 1000))

        noting = asyncio.create_task(note())
        print("listening", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            said, found[:] = list(found), []
            print(msgspec.json.encode(said).decode(), flush=True)
        noting.cancel()


if __name__ == "__main__":
    url, app, prefix, count = sys.argv[1:]
    asyncio.run(listen(url, app, prefix, int(count)))
