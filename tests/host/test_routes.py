"""Routes: nobody has too many clients, and few move when somebody comes or goes."""

import os
import sys
from collections import Counter
from collections.abc import Iterable
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roskva.host.routes import OVER_MEAN, Routes, RouteTarget

NAMES = st.lists(st.text("abcdef-0123456789", min_size=1, max_size=8), unique=True, max_size=12)
CLIENTS = st.lists(st.binary(min_size=16, max_size=16), max_size=60, unique=True)


@st.composite
def some_targets(draw: st.DrawFn) -> list[RouteTarget]:
    return [
        RouteTarget(name, draw(st.integers(0, 50)), draw(st.integers(1, 4)), draw(st.booleans()))
        for name in draw(NAMES)
    ]


def numbered(count: int) -> list[RouteTarget]:
    return [RouteTarget(f"registrar-{number}") for number in range(count)]


def clients(count: int) -> Iterable[bytes]:
    return (number.to_bytes(16) for number in range(count))


def placed(routes: Routes, those: Iterable[bytes]) -> dict[bytes, str]:
    """All of them, one after the other."""
    where = {}
    for client in those:
        (name,) = routes.route(client, 1)
        routes.sent(name)
        where[client] = name
    return where


def moved(before: dict[bytes, str], after: dict[bytes, str]) -> int:
    return sum(after[client] != name for client, name in before.items())


@given(some_targets(), CLIENTS, st.integers(1, 5))
def test_a_route_names_each_once_and_none_that_drains_and_the_full_ones_last(
    targets: list[RouteTarget], those: list[bytes], length: int
) -> None:
    routes, other_order = Routes(targets), Routes(targets[::-1])
    open_ = {target.name for target in targets if not target.draining}
    for client in those:
        route = routes.route(client, length)
        assert route == other_order.route(client, length)
        assert len(route) == len(set(route)) == min(length, len(open_))
        assert set(route) <= open_
        full = [routes.is_full(name) for name in route]
        assert full == sorted(full)
        assert not any(full) or len(route) - sum(full) == sum(
            not routes.is_full(name) for name in open_
        )


@given(some_targets(), CLIENTS)
def test_somebody_always_has_room(targets: list[RouteTarget], those: list[bytes]) -> None:
    routes = Routes(targets)
    for client in those if routes.clients else ():
        (name,) = routes.route(client, 1)
        assert not routes.is_full(name)
        routes.sent(name)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), CLIENTS)
def test_nobody_has_more_than_its_share_allows(weights: list[int], those: list[bytes]) -> None:
    routes = Routes([RouteTarget(f"r{at}", 0, weight) for at, weight in enumerate(weights)])
    where = Counter(placed(routes, those).values())
    assert where == Counter({name: count for name, count in routes.clients.items() if count})
    for name, count in where.items():
        assert count <= routes.most(name)


@given(NAMES.filter(bool), CLIENTS, st.data())
def test_on_the_ring_alone_only_the_clients_of_whoever_goes_or_comes_move(
    names: list[str], those: list[bytes], data: st.DataObject
) -> None:
    one = data.draw(st.sampled_from(names))
    with_it = Routes(map(RouteTarget, names), inf)
    without = Routes([RouteTarget(name) for name in names if name != one], inf)
    drained = Routes([RouteTarget(name, 0, 1, name == one) for name in names], inf)
    for client in those:
        assert drained.route(client) == without.route(client)
        left = [name for name in with_it.route(client, len(names)) if name != one]
        assert left == without.route(client, len(names))


def test_whoever_drains_leaves_its_clients_to_the_others() -> None:
    one, *others = numbered(4)
    full = [RouteTarget(one.name, 100, 1, True), *(RouteTarget(o.name, 124) for o in others)]
    routes = Routes(full)
    assert not any(map(routes.is_full, routes.clients)), "of 472 each of three may have 196"


def test_a_herd_between_two_reports_does_not_run_to_the_emptiest() -> None:
    targets = [RouteTarget("new"), *(RouteTarget(f"r{n}", 1000) for n in range(9))]
    routes = Routes(targets)
    placed(routes, clients(5000))
    assert routes.clients["new"] <= routes.most("new")
    assert max(routes.clients.values()) <= OVER_MEAN * 14_000 / 10 + 1


def test_twenty_registrars() -> None:
    _model(20, 20_000)


@pytest.mark.verify
def test_a_hundred_registrars_and_a_million_clients() -> None:
    _model(100, int(os.environ.get("ROSKVA_ROUTED_CLIENTS", "1000000")))


def _model(registrars: int, count: int) -> None:
    targets = numbered(registrars)
    told = []
    shares: dict[float, tuple[float, float]] = {}
    for over_mean in (inf, OVER_MEAN):
        routes = Routes(targets, over_mean)
        before = placed(routes, clients(count))
        loads = Counter(before.values())
        most = max(loads.values()) * registrars / count
        assert over_mean == inf or max(loads.values()) <= routes.most(targets[0].name)
        assert over_mean == inf or most <= OVER_MEAN * 1.001
        # If all were to ask anew. Those that are connected stay where they are.
        gone = targets[registrars // 2].name
        fewer = placed(Routes([t for t in targets if t.name != gone], over_mean), clients(count))
        more = placed(Routes([*targets, RouteTarget("registrar-new")], over_mean), clients(count))
        left, joined = moved(before, fewer) / count, moved(before, more) / count
        told.append(
            f"over mean {over_mean}: most {most:.3f} of the mean; one leaves: {left:.2%} move, of "
            f"which it had {loads[gone] / count:.2%}; one joins: {joined:.2%} move"
        )
        shares[over_mean] = left, joined
        if over_mean == inf:
            assert moved(before, fewer) == loads[gone]
            assert moved(before, more) == sum(name == "registrar-new" for name in more.values())
    for plain, bounded in zip(shares[inf], shares[OVER_MEAN], strict=True):
        assert bounded < 10 * plain
    sys.stderr.write(f"{registrars} registrars, {count:,} clients\n" + "\n".join(told) + "\n")
