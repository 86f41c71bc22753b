"""The algebra of digests, and the cutting of large sets."""

from hashlib import sha256
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.core.lone import SESSION, LoneClient
from tests.digests import sum_of

from roskva.core.digest import BUCKETS, DigestSum, bucket_sums, hash_of
from roskva.wire.messages import Sync, SyncRequest

KEYS = st.sets(st.text("abcdef/", min_size=1, max_size=6).map(lambda name: f"app/{name}"))


def digest_of(keys: list[str]) -> tuple[int, int]:
    digest = DigestSum()
    for key in keys:
        digest.add(hash_of(key))
    return digest.count, digest.sum


def test_an_object_counts_for_the_first_8_bytes_of_the_sha256_of_its_key() -> None:
    assert hash_of("app/x") == int.from_bytes(sha256(b"app/x").digest()[:8], "big")
    assert hash_of("app/ä") == int.from_bytes(sha256("app/ä".encode()).digest()[:8], "big")


@given(KEYS, st.randoms(use_true_random=False))
def test_the_order_does_not_matter(keys: set[str], random: Random) -> None:
    ordered = sorted(keys)
    shuffled = list(ordered)
    random.shuffle(shuffled)
    assert digest_of(ordered) == digest_of(shuffled) == (len(keys), sum_of(keys))


@given(KEYS, KEYS)
def test_removing_undoes_adding(kept: set[str], passing: set[str]) -> None:
    digest = DigestSum()
    for key in [*kept, *passing]:
        digest.add(hash_of(key))
    for key in passing:
        digest.remove(hash_of(key))
    assert (digest.count, digest.sum) == digest_of(list(kept))


@given(KEYS, KEYS)
def test_different_sets_have_different_digests(one: set[str], other: set[str]) -> None:
    assert (digest_of(list(one)) == digest_of(list(other))) == (one == other)


@given(KEYS)
def test_the_buckets_sum_up_to_the_whole(keys: set[str]) -> None:
    sums = bucket_sums(map(hash_of, keys))
    assert len(sums) == BUCKETS
    assert sum(sums) % 2**64 == sum_of(keys)
    for bucket in {hash_of(key) >> 56 for key in keys}:
        assert sums[bucket] == sum_of(key for key in keys if hash_of(key) >> 56 == bucket)


def is_under(key: str, prefix: bytes) -> bool:
    return hash_of(key).to_bytes(8).startswith(prefix)


def synced(count: int, sums: list[int] | None = None) -> tuple[list[str], list[Sync]]:
    """What a client registered for so many objects of long names sends to a sync request."""
    client = LoneClient()
    keys = [f"app/{'long' * 40}/{i}" for i in range(count)]
    client.greet()
    client.register(*keys)
    client.run(8)
    client.clear()
    client.hear(session=SESSION, sync_request=SyncRequest(sums or []))
    client.run(8)
    return keys, [sync for message in client.messages() for sync in message.syncs]


def test_a_set_too_large_for_a_message_is_cut_into_prefixes_that_cover_it_exactly() -> None:
    for count, longest in ((0, 0), (3, 0), (150, 1), (2000, 1)):
        keys, syncs = synced(count)
        assert sorted(key for sync in syncs for key in sync.objects) == sorted(keys)
        assert all(is_under(key, sync.prefix) for sync in syncs for key in sync.objects)
        assert sum(256 ** -len(sync.prefix) for sync in syncs) == 1, "all of it, and nothing twice"
        assert len({sync.prefix for sync in syncs}) == len(syncs)
        assert max(len(sync.prefix) for sync in syncs) == longest


def test_only_buckets_that_differ_are_sent_and_empty_ones_say_so() -> None:
    keys, _ = synced(300)
    sums = bucket_sums(map(hash_of, keys))
    ours = hash_of(keys[0]) >> 56
    empty = sums.index(0)
    sums[ours] ^= 1
    sums[empty] = 99
    _, syncs = synced(300, sums)
    assert {sync.prefix: sorted(sync.objects) for sync in syncs} == {
        bytes([ours]): sorted(key for key in keys if hash_of(key) >> 56 == ours),
        bytes([empty]): [],
    }
