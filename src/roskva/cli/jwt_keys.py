"""Private keys for JWTs, and the sets of public ones (JWKS) that nodes read."""

import hashlib
import os
from enum import Enum
from pathlib import Path
from typing import Any, Final

import jwt
import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from roskva.errors import BadConfig, BadInput

PrivateKey = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_RSA_BITS: Final = 3072


class Algorithm(Enum):
    EDDSA = "EdDSA"
    ES256 = "ES256"
    RS256 = "RS256"


def generate(algorithm: Algorithm) -> PrivateKey:
    match algorithm:
        case Algorithm.EDDSA:
            return ed25519.Ed25519PrivateKey.generate()
        case Algorithm.ES256:
            return ec.generate_private_key(ec.SECP256R1())
        case Algorithm.RS256:
            return rsa.generate_private_key(65537, _RSA_BITS)


def new_private_key(path: Path, algorithm: Algorithm) -> PrivateKey:
    key = generate(algorithm)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(pem)
    except FileExistsError:
        raise BadInput(f"{path} exists, and is not replaced: name another --private-key") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from None
    return key


def read_private_key(path: Path) -> PrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError):
        raise BadInput(f"{path} is no private key in PEM without a password") from None
    if not isinstance(key, PrivateKey):
        raise BadInput(f"{path} is no key for {', '.join(a.value for a in Algorithm)}")
    return key


def algorithm_of(key: PrivateKey) -> Algorithm:
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return Algorithm.EDDSA
    return Algorithm.RS256 if isinstance(key, rsa.RSAPrivateKey) else Algorithm.ES256


def public_jwk(key: PrivateKey) -> dict[str, Any]:
    public = key.public_key()
    if isinstance(public, ed25519.Ed25519PublicKey):
        jwk: dict[str, Any] = OKPAlgorithm.to_jwk(public, as_dict=True)
    elif isinstance(public, rsa.RSAPublicKey):
        jwk = RSAAlgorithm.to_jwk(public, as_dict=True)
    else:
        jwk = ECAlgorithm.to_jwk(public, as_dict=True)
    jwk.pop("key_ops", None)
    return {**jwk, "kid": key_id(key), "alg": algorithm_of(key).value, "use": "sig"}


def key_id(key: PrivateKey) -> str:
    """Of the public key, so that it need not be kept anywhere."""
    public = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(public).hexdigest()[:16]


class _Jwks(msgspec.Struct):
    keys: list[dict[str, Any]]


def add_to_jwks(path: Path, key: PrivateKey) -> str:
    """To those in the file, if there are any; returns the key's id."""
    try:
        known = msgspec.json.decode(path.read_bytes(), type=_Jwks).keys
    except FileNotFoundError:
        known = []
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        raise BadConfig(f"{path} is there and is no set of keys (JWKS): name another") from None
    text = msgspec.json.format(msgspec.json.encode(_Jwks([*known, public_jwk(key)])))
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_bytes(text + b"\n")
        os.replace(temporary, path)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from None
    return key_id(key)


def mint_jwt(key: PrivateKey, claims: dict[str, Any]) -> str:
    return jwt.encode(claims, key, algorithm_of(key).value, headers={"kid": key_id(key)})
