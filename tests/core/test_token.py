"""Tokens: sealed, opened, and refused if anything about them is wrong."""

from hypothesis import given
from hypothesis import strategies as st

from roskva.core.identity import NONCE_BYTES, Claims, TokenKeys

OLD, NEW = TokenKeys({1: bytes(32)}, 1), TokenKeys({1: bytes(32), 2: b"k" * 32}, 2)
CLAIMS = st.builds(
    Claims,
    st.just("app"),
    st.binary(min_size=16, max_size=16),
    st.text(max_size=20),
    st.just("local"),
    st.integers(1000, 2**40),
)
NONCE = b"n" * NONCE_BYTES


@given(CLAIMS)
def test_what_was_sealed_is_opened(claims: Claims) -> None:
    assert OLD.open(OLD.seal(claims, NONCE), wall_s=999) == claims


@given(CLAIMS)
def test_every_flipped_bit_is_rejected(claims: Claims) -> None:
    token = NEW.seal(claims, NONCE)
    for bit in range(8 * len(token)):
        tampered = bytearray(token)
        tampered[bit // 8] ^= 1 << bit % 8
        assert NEW.open(bytes(tampered), wall_s=999) is None


@given(CLAIMS)
def test_every_shortened_or_lengthened_token_is_rejected(claims: Claims) -> None:
    token = NEW.seal(claims, NONCE)
    assert all(NEW.open(token[:size], wall_s=999) is None for size in range(len(token)))
    assert NEW.open(token + b"\0", wall_s=999) is None


@given(CLAIMS, st.integers(0, 10))
def test_an_expired_token_is_rejected(claims: Claims, late: int) -> None:
    token = OLD.seal(claims, NONCE)
    assert OLD.open(token, claims.expires_at - 1) == claims
    assert OLD.open(token, claims.expires_at + late) is None


@given(CLAIMS)
def test_keys_can_be_rotated(claims: Claims) -> None:
    assert NEW.open(OLD.seal(claims, NONCE), wall_s=999) == claims
    assert OLD.open(NEW.seal(claims, NONCE), wall_s=999) is None


@given(CLAIMS)
def test_a_token_does_not_show_what_it_says(claims: Claims) -> None:
    assert claims.client not in OLD.seal(claims, NONCE)


@given(st.binary(max_size=100))
def test_anything_else_is_no_token(token: bytes) -> None:
    assert NEW.open(token, wall_s=0) is None
