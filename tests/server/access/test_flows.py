"""The app of a change source belongs to it: its flows get in, and nobody else."""

from pathlib import Path

import pytest
from tests.loops import in_loop
from tests.server.access.settings import app, identified
from tests.server.access.test_authority import HASHED, KEY
from tests.serving.keyed import Issuer

from roskva.config import AppConfig, Config, SourceConfig
from roskva.core.identity import TokenKeys
from roskva.errors import RoskvaError, Unauthorised
from roskva.links.own_keys import FLOWS, PROBER, flow_credential, own_key
from roskva.model import NOBODY, Principal, Update
from roskva.server.access.authority import AllowAll, authority_of
from roskva.server.access.keyed import KeyedAuthority
from roskva.server.access.keys import FlowKeys
from roskva.server.admission import Admission
from roskva.server.space import DiskSpace

SOURCE = SourceConfig(url="postgresql://db/shop", tables=("products",))
OLD, NEW = bytes(32), bytes(range(32))
BEFORE = TokenKeys({1: OLD}, 1)
AFTER = TokenKeys({2: NEW, 1: OLD}, 2)
PRODUCT, OTHER = Update("shop/products/1", 7), Update("other/x", 7)


def config(**apps: AppConfig) -> Config:
    return Config(apps=apps, source={"shop": SOURCE})


def outcomes(authority: AllowAll | KeyedAuthority, settings: Config, who: Principal) -> list[str]:
    """Of a publish in the app of the source, and in another."""
    admission = Admission(settings, authority, DiskSpace(Path(), 0))
    admitted = admission.admit_all(who, [PRODUCT, OTHER])
    return [str(each) if isinstance(each, RoskvaError) else "yes" for each in admitted]


@pytest.mark.parametrize("known", [BEFORE, AFTER])
@pytest.mark.parametrize("read", [BEFORE, AFTER])
def test_a_flow_beside_the_node_gets_in_also_while_keys_are_rotated(
    known: TokenKeys, read: TokenKeys
) -> None:
    shown = flow_credential("shop", own_key(read, FLOWS))
    who = FlowKeys(["shop"], known).find(shown)
    assert who is not None
    assert who.app == "shop"
    assert who.key


def test_who_does_not_know_the_key_of_the_node_is_no_flow() -> None:
    keys, key = FlowKeys(["shop"], BEFORE), own_key(BEFORE, FLOWS)
    for shown in (
        flow_credential("other", key),
        flow_credential("shop", key[:-1]),
        flow_credential("shop", ""),
        flow_credential("shop", own_key(BEFORE, PROBER)),
        key,
        "",
    ):
        assert keys.find(shown) is None
    assert FlowKeys(["shop"]).find(flow_credential("shop", key)) is None


def test_without_keys_nobody_but_a_flow_publishes_in_the_app_of_a_source() -> None:
    settings = config()
    authority = authority_of(settings, BEFORE)
    assert isinstance(authority, AllowAll)
    assert authority.identify(None, None) is NOBODY
    assert authority.identify(None, "something else") is NOBODY
    refused, allowed = outcomes(authority, settings, NOBODY)
    assert "belongs to the source shop" in refused
    assert allowed == "yes"
    flow = authority.identify(None, flow_credential("shop", own_key(BEFORE, FLOWS)))
    assert outcomes(authority, settings, flow)[0] == "yes"


@in_loop
async def test_with_keys_a_jwt_does_not_publish_there_and_a_publish_key_does(
    tmp_path: Path,
) -> None:
    issuer = Issuer(tmp_path / "jwks.json")
    settings = config(shop=app(issuer, publish=["**"], publish_keys=[HASHED]))
    authority = KeyedAuthority(settings, BEFORE)
    alice = await identified(authority.identify(None, issuer.jwt("alice", "shop")))
    assert "belongs to the source shop" in outcomes(authority, settings, alice)[0]
    for credential in (KEY, flow_credential("shop", own_key(BEFORE, FLOWS))):
        who = await identified(authority.identify("shop", credential))
        mine, not_mine = outcomes(authority, settings, who)
        assert mine == "yes"
        assert "not allowed" in not_mine


def test_nobody_resets_a_single_object_there() -> None:
    settings = config()
    authority = authority_of(settings, BEFORE)
    admission = Admission(settings, authority, DiskSpace(Path(), 0))
    flow = Principal("flow-shop", "shop", key=True)
    for who in (NOBODY, flow):
        with pytest.raises(Unauthorised, match="belongs to the source shop"):
            admission.reset(who, "shop/products/1")
    assert admission.reset(NOBODY, "other/x")
