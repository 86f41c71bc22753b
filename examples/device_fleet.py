"""A fleet of cameras in the wild, configured by region.

    roskva serve
    python examples/device_fleet.py --url http://localhost:7600

Every camera of a region shares one configuration, `REGION/camera`. Researchers change it on a
server; cameras are told, fetch it and store it. A camera sleeps most of the time to save its
battery. Whatever happened meanwhile, it wakes to one notification per configuration that changed,
and to none if nothing did.

What survives a camera's sleep lies in its directory: the configuration, and the identity of its
Roskva client. The two belong together. A camera that lost its configuration but kept the identity
would not be told again what it had acked.
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

import roskva

APP = "fleet"
AWAKE_SECONDS = 0.5
"""How long a camera waits for more news before it goes back to sleep."""


class ConfigServer:
    """Where configurations are made. Its versions rise, also from one run to the next."""

    def __init__(self, publisher: roskva.Publisher) -> None:
        self.publisher = publisher
        self.configurations: dict[str, tuple[int, str]] = {}

    async def change(self, region: str, setting: str) -> None:
        version = time.time_ns() // 1000
        self.configurations[f"{region}/camera"] = (version, setting)
        await self.publisher.publish(f"{region}/camera", version)

    def download(self, name: str) -> tuple[int, str]:
        return self.configurations[name]


class Camera:
    def __init__(self, title: str, region: str, directory: Path) -> None:
        self.title = title
        self.name = f"{region}/camera"
        self.stored = directory / f"{title}.json"
        self.identity = directory / f"{title}.identity"

    def configuration(self) -> tuple[int | None, str]:
        if not self.stored.exists():
            return None, "as it left the factory"
        version, setting = json.loads(self.stored.read_text())
        return version, setting

    async def wake(self, url: str, server: ConfigServer) -> int:
        """Listen until there is no more news. Returns how many notifications came."""
        notifications = 0
        async with roskva.Client(url, app=APP, identity=self.identity) as client:
            # The version tells Roskva what this camera has; anything else is news to it.
            await client.register(self.name, version=self.configuration()[0])
            registered = False
            while True:
                try:
                    patience = AWAKE_SECONDS if registered else None
                    async with asyncio.timeout(patience):
                        event = await anext(client)
                except TimeoutError:
                    return notifications
                match event:
                    case roskva.RegistrationStatus(registered=True):
                        registered = True
                    case roskva.Notify() | roskva.NotifyUnknown():
                        notifications += 1
                        version, setting = server.download(event.name)
                        self.stored.write_text(json.dumps([version, setting]))
                        client.ack(event)  # after the configuration is stored, not before


async def wake_all(cameras: list[Camera], url: str, server: ConfigServer) -> None:
    told = await asyncio.gather(*(camera.wake(url, server) for camera in cameras))
    for camera, notifications in zip(cameras, told, strict=True):
        setting = camera.configuration()[1]
        print(f"  {camera.title}: {notifications} notification(s), now set to {setting!r}")


async def main(url: str, directory: Path) -> None:
    async with roskva.Publisher(url, app=APP) as publisher:
        server = ConfigServer(publisher)
        coast = [Camera(f"coast-{number}", "coast", directory) for number in (1, 2)]
        tundra = [Camera("tundra-1", "tundra", directory)]

        print("Each region gets its configuration, and the cameras are switched on:")
        await server.change("coast", "a picture every hour")
        await server.change("tundra", "a picture when something moves")
        await wake_all([*coast, *tundra], url, server)

        print("While they sleep, the coast's configuration is changed 50 times:")
        for minutes in range(50, 0, -1):
            await server.change("coast", f"a picture every {minutes} minutes")
        await wake_all([*coast, *tundra], url, server)

        print("Nothing happens for a while:")
        await wake_all([*coast, *tundra], url, server)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Cameras, configured by region.")
    arguments.add_argument("--url", default="http://localhost:7600", help="of a Roskva node")
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(main(arguments.parse_args().url, Path(scratch)))
