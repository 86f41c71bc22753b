"""Ports for servers that are started here: by tests in several processes, and by benchmarks."""

import os
import random
import socket
from pathlib import Path


def free_port() -> int:
    """Nobody else who asks here gets it while this process lives. It is below the range of which
    the kernel takes ports for outgoing connections: so nobody has it, either, while a server that
    is to come back is down."""
    lowest_of_kernel = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    dice = random.Random(os.urandom(8))
    while True:
        port = dice.randrange(10_000, lowest_of_kernel)
        if _reserve(port) and _is_free(port):
            return port


def _reserve(port: int) -> bool:
    """By a name that only one process can have, and loses with its end."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0roskva-port-{port}")
    except OSError:
        name.close()
        return False
    name.detach()
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
