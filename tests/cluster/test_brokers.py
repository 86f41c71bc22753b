"""The engine: brokers that start, keep what they acknowledged, and come back with it."""

from pathlib import Path
from typing import Any, Final

import pytest
from tests.cluster.brokers import Brokers, brokers, driver
from tests.serving.nodes import await_that

TOPIC: Final = "feed"
PATIENCE_S: Final = 60.0


def make_topic(engine: Brokers, copies: int) -> None:
    from importlib import import_module

    admin_module = import_module("confluent_kafka.admin")
    admin = admin_module.AdminClient({"bootstrap.servers": engine.servers})
    made = admin.create_topics([admin_module.NewTopic(TOPIC, 1, copies)])
    made[TOPIC].result(PATIENCE_S)


def publish(producer: Any, *values: bytes) -> list[int]:
    """The offsets that were acknowledged by all replicas in sync."""
    offsets: list[int] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    for value in values:
        producer.produce(TOPIC, value, on_delivery=delivered, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    return offsets


def new_producer(engine: Brokers) -> Any:
    settings = {"bootstrap.servers": engine.servers, "acks": "all", "enable.idempotence": True}
    return driver().Producer({**settings, "log_level": 0})


def read(engine: Brokers, count: int) -> list[bytes]:
    """The first of the topic."""
    consumer = driver().Consumer(
        {"bootstrap.servers": engine.servers, "group.id": "test", "log_level": 0}
    )
    try:
        consumer.assign([driver().TopicPartition(TOPIC, 0, 0)])
        found: list[bytes] = []

        def all_read() -> bool:
            found.extend(
                message.value()
                for message in consumer.consume(count - len(found), timeout=1.0)
                if message.error() is None
            )
            return len(found) == count

        await_that(all_read, PATIENCE_S)
        return found
    finally:
        consumer.close()


def test_a_broker_comes_back_with_what_it_acknowledged(tmp_path: Path) -> None:
    with brokers(tmp_path) as engine:
        make_topic(engine, 1)
        producer = new_producer(engine)
        assert publish(producer, b"one", b"two") == [0, 1]
        engine.each[0].kill()
        engine.start()
        assert read(engine, 2) == [b"one", b"two"]
        assert publish(producer, b"three") == [2]
        engine.each[0].stop()
        engine.start()
        assert read(engine, 3) == [b"one", b"two", b"three"]


@pytest.mark.verify
def test_of_three_brokers_any_may_go(tmp_path: Path) -> None:
    with brokers(tmp_path, 3) as engine:
        make_topic(engine, 3)
        producer = new_producer(engine)
        sent = [b"%d" % number for number in range(7)]
        assert publish(producer, sent[0]) == [0]
        for at, broker in enumerate(engine.each):
            broker.kill()
            assert publish(producer, sent[2 * at + 1]) == [2 * at + 1]
            broker.start()
            engine.await_all()
            broker.suspend()
            assert publish(producer, sent[2 * at + 2]) == [2 * at + 2]
            broker.resume()
            engine.await_all()
        assert read(engine, len(sent)) == sent
