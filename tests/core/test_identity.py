"""What a client keeps of itself on disk, packed and unpacked."""

from hypothesis import given
from hypothesis import strategies as st

from roskva.core.identity import Identity, pack_identity, unpack_identity

IDENTITIES = st.builds(
    Identity,
    st.just("app"),
    st.binary(min_size=16, max_size=16),
    st.binary(min_size=1, max_size=100),
)


@given(IDENTITIES)
def test_what_was_packed_is_unpacked(identity: Identity) -> None:
    assert unpack_identity(pack_identity(identity), "app") == identity


@given(IDENTITIES)
def test_every_flipped_bit_is_noticed(identity: Identity) -> None:
    packed = pack_identity(identity)
    for bit in range(8 * len(packed)):
        damaged = bytearray(packed)
        damaged[bit // 8] ^= 1 << bit % 8
        assert unpack_identity(bytes(damaged), "app") is None


@given(IDENTITIES)
def test_every_shortened_copy_is_noticed(identity: Identity) -> None:
    packed = pack_identity(identity)
    assert all(unpack_identity(packed[:size], "app") is None for size in range(len(packed)))


@given(st.binary(max_size=100))
def test_anything_else_is_no_identity(stored: bytes) -> None:
    assert unpack_identity(stored, "app") is None


@given(IDENTITIES)
def test_another_apps_identity_is_none_of_ours(identity: Identity) -> None:
    assert unpack_identity(pack_identity(identity), "other") is None
