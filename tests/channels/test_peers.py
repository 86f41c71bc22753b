"""Connections per address."""

import asyncio
from typing import Any

import pytest

from roskva.channels.peers import UNCOUNTED, Addresses, Peers


class From(asyncio.Transport):
    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._address, 4711) if name == "peername" else default


def test_an_address_has_so_many_and_another_has_its_own() -> None:
    found = Addresses(Peers(()), 2)
    assert [found.enter(From("1.2.3.4")) for _ in range(3)] == ["1.2.3.4", "1.2.3.4", None]
    assert found.enter(From("1.2.3.5")) == "1.2.3.5"
    assert found.refused == 1
    found.leave("1.2.3.4")
    assert found.enter(From("1.2.3.4")) == "1.2.3.4"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "127.8.8.8"])
def test_this_machine_may_have_any_number(address: str) -> None:
    found = Addresses(Peers(()), 1)
    assert {found.enter(From(address)) for _ in range(3)} == {UNCOUNTED}


def test_behind_a_proxy_it_is_the_address_in_front_of_it() -> None:
    found = Addresses(Peers(["10.0.0.0/8"]), 1)
    assert [found.enter(From("10.0.0.1"), "1.2.3.4") for _ in range(2)] == ["1.2.3.4", None]
    assert found.enter(From("10.0.0.1"), "1.2.3.5") == "1.2.3.5"
    assert [found.enter(From("10.0.0.1")) for _ in range(2)] == [UNCOUNTED] * 2
    # Anybody can say so.
    assert [found.enter(From("9.9.9.9"), name) for name in ("1.1.1.1", "1.1.1.2")] == [
        "9.9.9.9",
        None,
    ]


def test_whoever_is_on_the_machine_of_a_proxy_is_counted() -> None:
    found = Addresses(Peers(["10.0.0.1"]), 1)
    assert [found.enter(From("10.0.0.1"), "127.0.0.1") for _ in range(2)] == ["127.0.0.1", None]


def test_an_ipv6_address_is_counted_with_its_network() -> None:
    found = Addresses(Peers(()), 2)
    given = ("2001:db8::1", "2001:db8::2:1", "2001:db8:0:0:ffff::3", "2001:db8:0:1::1")
    assert [found.enter(From(address)) is not None for address in given] == [
        True,
        True,
        False,
        True,
    ]


def test_nothing_is_kept_of_who_has_left() -> None:
    found = Addresses(Peers(()), 2)
    for address in ("1.2.3.4", "1.2.3.4", "2.2.2.2"):
        found.leave(found.enter(From(address)))
    found.leave(None)
    found.leave(UNCOUNTED)
    assert not found._counts
