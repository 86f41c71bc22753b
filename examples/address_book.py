"""A cached address book: two devices share contacts, and neither shows an old one for long.

    roskva serve
    python examples/address_book.py --url http://localhost:7600

The contacts live in a backend (here a dictionary; think of your database). Each device keeps a
cache of what it has read. Whoever changes a contact writes to the backend, which publishes the new
version; Roskva tells the other device, and that drops its copy and reads again.
"""

import argparse
import asyncio
import time

import roskva

APP = "contacts"


class Backend:
    """Where contacts really are. It publishes every change, after it was made."""

    def __init__(self, publisher: roskva.Publisher) -> None:
        self.publisher = publisher
        self.contacts: dict[str, tuple[int, str]] = {}

    async def read(self, name: str) -> tuple[int, str]:
        return self.contacts.get(name, (0, "nobody"))

    async def write(self, name: str, phone: str) -> int:
        version = time.time_ns() // 1000  # rises from change to change, and from run to run
        self.contacts[name] = (version, phone)
        await self.publisher.publish(name, version)
        return version


class Device:
    """An application with a cache. It lets go of a contact when it is told that there is news."""

    def __init__(self, title: str, url: str, backend: Backend) -> None:
        self.title = title
        self.backend = backend
        self.cache: dict[str, tuple[int, str]] = {}
        self.busy = asyncio.Lock()
        self.changed = asyncio.Event()
        self.registered = asyncio.Event()
        self.client = roskva.Client(url, app=APP)

    async def show(self, name: str) -> str:
        async with self.busy:
            if name not in self.cache:
                self.cache[name] = await self.backend.read(name)
                print(f"  {self.title}: reads {name} from the backend")
            return self.cache[name][1]

    async def edit(self, name: str, phone: str) -> None:
        async with self.busy:  # or news of this very change may come before its version is known
            version = await self.backend.write(name, phone)
            self.cache[name] = (version, phone)

    async def listen(self) -> None:
        async for event in self.client:
            async with self.busy:
                self.take(event)
            # Only now: an event that is never acked comes again, even after a crash.
            self.client.ack(event)
            self.changed.set()

    def take(self, event: roskva.ClientEvent) -> None:
        match event:
            case roskva.Notify(name=name, version=version):
                if name in self.cache and self.cache[name][0] < version:
                    del self.cache[name]
                    print(f"  {self.title}: is told that {name} has changed, and drops its copy")
            case roskva.NotifyUnknown(name=name):
                # Roskva cannot say which version is the latest: look for yourself.
                self.cache.pop(name, None)
            case roskva.RegistrationStatus():
                self.registered.set()

    async def until(self, name: str, phone: str) -> None:
        while await self.show(name) != phone:
            self.changed.clear()
            await self.changed.wait()


async def main(url: str) -> None:
    async with roskva.Publisher(url, app=APP) as publisher:
        backend = Backend(publisher)
        phone, laptop = Device("phone", url, backend), Device("laptop", url, backend)
        async with phone.client, laptop.client, asyncio.TaskGroup() as tasks:
            listening = [tasks.create_task(device.listen()) for device in (phone, laptop)]
            for device in (phone, laptop):
                await device.client.register("alice")
            for device in (phone, laptop):
                await device.registered.wait()

            print("Alice gets a number, entered on the laptop:")
            await laptop.edit("alice", "555-1234")
            await phone.until("alice", "555-1234")
            print(f"The phone shows {await phone.show('alice')}.")

            print("She moves, and the phone is the first to know:")
            await phone.edit("alice", "555-9876")
            await laptop.until("alice", "555-9876")
            print(f"The laptop shows {await laptop.show('alice')}. Nobody polled.")

            for task in listening:
                task.cancel()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Two devices share contacts.")
    arguments.add_argument("--url", default="http://localhost:7600", help="of a Roskva node")
    asyncio.run(main(arguments.parse_args().url))
