"""The harness itself: a registration, a publish and an ack, all the way and back."""

from tests.core.pair import Pair


def test_a_published_version_reaches_a_registered_client_and_its_ack_the_disk() -> None:
    pair = Pair()
    client = pair.client()
    client.register("app/x")
    pair.run(1)
    pair.publish("app/x", 5)
    pair.run(5)
    assert client.told("app/x") == [None, 5]
    [row] = pair.shard.cells.values()
    assert row["app/x"].acked == 5


def test_two_shards_and_two_registrars_serve_alike() -> None:
    pair = Pair(shards=2, registrars=2)
    clients = [pair.client(), pair.client()]
    clients[1].registrar = pair.registrars[1]
    keys = [f"app/{i}" for i in range(6)]
    for client in clients:
        client.register(*keys)
    pair.run(1)
    for version, key in enumerate(keys):
        pair.publish(key, version)
    pair.run(1)
    for client in clients:
        assert [client.told(key) for key in keys] == [[None, v] for v in range(6)]
