"""What the benchmarks of databases compute of turns, stamps and bytes; nothing is measured here."""

import io
import socket
import threading
from contextlib import closing

import pytest
from benchmarks.result import Result
from benchmarks.serving.servers import Server
from benchmarks.sources import backlog, behind, flows, peer, told
from benchmarks.sources.relay import relayed
from benchmarks.turns import OURS


def turn(per_s: float) -> backlog.Turn:
    return backlog.Turn(per_s / 2, per_s, 2 * per_s, 10.0, 0.5, 100.0, 150.0, 200.0)


def named(results: list[Result], name: str) -> Result:
    return next(result for result in results if result.name == name)


def test_a_backlog_is_compared_turn_by_turn() -> None:
    turns = {
        OURS: [turn(50_000), turn(60_000), turn(30_000)],
        backlog.PUBLISHED: [turn(20_000)] * 3,
        peer.NAME: [turn(100_000), turn(40_000), turn(60_000)],
    }
    results = backlog.results_of("PostgreSQL", 1000, turns, "")
    warm = named(results, "PostgreSQL: changes in transactions of one row, warm")
    assert (warm.value, warm.peers[peer.NAME], warm.met) == (50_000, 60_000, True)
    assert warm.beaten_by(warm.peers[peer.NAME])
    beaten = [result for result in results if any(map(result.beaten_by, result.peers.values()))]
    assert all(result.why for result in beaten)
    assert named(results, f"… to {peer.NAME}").value == 0.5
    assert named(results, "PostgreSQL: the same, cold").value == 25_000


def test_without_debezium_the_row_says_so() -> None:
    turns = {OURS: [turn(1000)], backlog.PUBLISHED: [turn(900)]}
    missing = "Maven cannot fetch Debezium's engine here"
    results = backlog.results_of("MariaDB", 1000, turns, missing)
    warm = named(results, "MariaDB: changes in transactions of one row, warm")
    assert warm.met is False
    assert warm.note.endswith(missing)


def test_delays_are_those_of_changes_since_then_in_order() -> None:
    stamps = [(2_000_000, 2_004_000), (999_999, 5_000_000), (1_500_000, 1_501_500)]
    assert told.delays_ms(stamps, 1.0) == [1.5, 4.0]


def test_the_sustained_rate_is_what_was_committed_while_delays_were_short() -> None:
    rates = [
        told.Rate(1000, 990, 4.0, 20.0, 1.0),
        told.Rate(4000, 3500, 9.0, 900.0, 0.99),
        told.Rate(8000, 5000, 800.0, 3000.0, 0.5),
    ]
    results = told.rated(rates)
    assert results[0].value == 3500
    assert [r.value for r in results if r.name == "told one by one"] == [100.0, 99.0, 50.0]
    assert told.rated(rates[2:])[0].value == 0.0


def test_medians_until_told_have_those_of_the_peer_beside_them() -> None:
    p50, p99 = told.results({OURS: [[1.0, 3.0, 9.0]] * 3, peer.NAME: [[2.0], [7.0], [5.0]]}, "")
    assert (p50.value, p50.peers, p50.met) == (3.0, {peer.NAME: 5.0}, True)
    assert p99.value == 9.0


def test_amplification_is_that_of_one_flow() -> None:
    one, five, twenty = flows.amplification({1: 0.5, 5: 0.5, 20: 0.6}, "")
    assert (one.value, five.value, five.met) == (0.5, 1.0, True)
    assert twenty.value == pytest.approx(1.2)
    assert twenty.met is False
    [alone] = flows.amplification({1: 0.5}, "There is no Java.")
    assert alone.note == "more flows: There is no Java."


def test_delays_through_spark_are_a_row_for_each_number_of_flows() -> None:
    results = flows.through_spark({2: [100.0, 200.0, 300.0], 5: [400.0]})
    assert [(r.at, r.value, r.met) for r in results] == [
        *((2, 200.0, True), (5, 400.0, None)),
        *((2, 300.0, None), (5, 400.0, None)),
    ]


def test_what_a_flow_does_to_others_is_the_median_of_neighbouring_turns() -> None:
    turns = [
        behind.Turn(4.0, 4.4, 600_000),
        behind.Turn(5.0, 5.0, 500_000),
        behind.Turn(4, 8, 700_000),
    ]
    rate, others = behind.results(turns)
    assert (rate.value, rate.met) == (600_000, True)
    assert others.value == pytest.approx(1.1)
    assert others.met
    assert others.note == "3 turns, 1.00 to 2.00"


def test_the_program_of_debezium_is_heard() -> None:
    said = "at 5 9\nreading\n100 1000000000\nat 6 11\n250 2500000000\n"
    heard = peer.Peer(Server("Debezium", 0), io.StringIO(said))
    heard.await_ready()
    assert [(p.at, p.changes) for p in heard.await_changes(250)] == [(1.0, 100), (2.5, 250)]
    assert heard.take_stamps() == [(5, 9), (6, 11)]
    with pytest.raises(RuntimeError, match="has ended"):
        heard.await_changes(300)


def test_a_relay_counts_what_the_server_says() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                assert connection.recv(100) == b"question"
                connection.sendall(b"a long answer")

        serving = threading.Thread(target=serve)
        serving.start()
        with (
            relayed(server.getsockname()[1]) as relay,
            socket.create_connection(("127.0.0.1", relay.port)) as client,
        ):
            client.sendall(b"question")
            assert client.makefile("rb").read() == b"a long answer"
            serving.join()
            assert relay.said == len(b"a long answer")
