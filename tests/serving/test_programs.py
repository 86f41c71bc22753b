"""mosquitto_sub, mosquitto_pub, curl and a browser against a node, none of which knows Roskva."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.serving.ingress import Ingress
from tests.serving.nodes import Node, await_that
from tests.serving.programs import PATIENCE_S, Program, needs, run

Fresh = Callable[[], str]
StartNode = Callable[..., Node]

needs_mosquitto = needs("mosquitto_sub", "mosquitto-clients")
CHROMIUM = (
    *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-port=0"),
)


def subscriber(node: Node, topic: str, *flags: str) -> Program:
    words = ("-h", "127.0.0.1", "-p", str(node.mqtt_port), "-t", topic, *flags)
    return Program("stdbuf", "-oL", "mosquitto_sub", *words)


def mosquitto_pub(node: Node, topic: str, message: str, *flags: str) -> None:
    words = ("-h", "127.0.0.1", "-p", str(node.mqtt_port), "-t", topic, "-m", message, *flags)
    run("mosquitto_pub", *words)


@needs_mosquitto
def test_with_assigned_versions_a_node_is_a_broker_of_latest_values(
    latest_value: Node,
) -> None:
    node, topic = latest_value, "home/temp"
    mosquitto_pub(node, topic, "21.0", "-r", "-q", "1")
    kept = ("-c", "-i", "kitchen", "-q", "1")
    with (
        subscriber(node, topic) as qos_0,
        subscriber(node, topic, "-q", "1") as qos_1,
        subscriber(node, topic, "-V", "5", "-q", "1") as v5,
    ):
        with subscriber(node, topic, *kept) as kitchen:
            everybody = (qos_0, qos_1, v5, kitchen)
            assert [program.line() for program in everybody] == ["21.0"] * 4
            mosquitto_pub(node, topic, "21.5")
            assert [program.line() for program in everybody] == ["21.5"] * 4
        for celsius in ("22.0", "22.5", "23.0"):
            mosquitto_pub(node, topic, celsius, "-q", "1", "-V", "mqttv5")
            assert [program.line() for program in (qos_0, qos_1, v5)] == [celsius] * 3
        with subscriber(node, topic, *kept) as kitchen, subscriber(node, topic) as newcomer:
            # The kept session is told what it missed, and a SUBSCRIBE what there is.
            assert [kitchen.line(), kitchen.line()] == ["23.0"] * 2
            assert newcomer.line() == "23.0"
            mosquitto_pub(node, topic, "24.0", "-q", "2")
            present = [qos_0, qos_1, v5, kitchen, newcomer]
            assert [program.line() for program in present] == ["24.0"] * 5
            assert all(program.is_silent() for program in present)


@needs_mosquitto
def test_versions_go_from_mosquitto_pub_to_mosquitto_sub(shared: Node, fresh: Fresh) -> None:
    topic = fresh()
    with subscriber(shared, topic, "-q", "1", "-F", "%t %p") as watching:
        assert watching.line() == f"{topic} ?"
        mosquitto_pub(shared, topic, "41", "-q", "1")
        assert watching.line() == f"{topic} 41"
        mosquitto_pub(shared, topic, "no version")
        mosquitto_pub(shared, topic, "42", "-V", "mqttv5", "-q", "1")
        assert watching.line() == f"{topic} 42"
    assert shared.read(topic) == 42


@needs("curl", "curl")
def test_curl_shows_events(shared: Node, fresh: Fresh) -> None:
    key = fresh()
    shared.publish(key, 1)
    with Program("curl", "-sN", f"{shared.url}/v1/events?object={key}") as curl:
        for version in range(1, 4):
            id, kind, data, end = (curl.line() for _ in range(4))
            assert id.startswith(f"id: {version}-")
            assert kind == "event: notify"
            assert f'"version":"{version}"' in data
            assert not end
            shared.publish(key, version + 1)


@needs("chromium", "chromium")
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_browser_s_event_source_comes_back_by_itself_and_goes_on_where_it_was(
    start_node: StartNode, tmp_path: Path, how: str
) -> None:
    node = start_node()
    node.publish("test/a", 41)
    node.publish("test/b", 7)
    profile = f"--user-data-dir={tmp_path / 'chromium'}"
    with (
        Ingress(node, "/v1/events?object=test/a&object=test/b") as ingress,
        Program(*CHROMIUM, profile, ingress.page, end=signal.SIGKILL),
    ):
        ingress.await_told({"test/a 41", "test/b 7"})
        node.publish("test/a", 42)
        ingress.await_told({"test/a 41", "test/b 7", "test/a 42"})
        getattr(node, how)()
        node.start()
        node.publish("test/b", 8)
        await_that(lambda: len(ingress.last_event_ids) >= 2, PATIENCE_S)
        ingress.await_told({"test/a 41", "test/b 7", "test/a 42", "test/b 8"})
        assert len(ingress.told) == 4  # nothing twice
        first, *_, last = ingress.last_event_ids
        assert first is None
        assert last is not None
        assert last.startswith("42-")
