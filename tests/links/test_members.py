"""Names of members, and what their certificates are looked at for."""

from pathlib import Path

import pytest
from tests.links.members import CELL, ONE, TWO, MembersAuthority, issued

from roskva.cli.certs import CertificateAuthority
from roskva.errors import BadConfig
from roskva.links.members import (
    CertificateFiles,
    Member,
    MemberCertificates,
    found_there,
    let_in,
)


def shown(*host_names: str) -> dict[str, object]:
    return {"subjectAltName": tuple(("DNS", name) for name in host_names)}


@pytest.mark.parametrize(
    "text", ["", "Member", "member_1", "member.1", "-member", "member-", "m" * 64, "é", "a b", "*"]
)
def test_what_is_no_name_of_a_member_or_a_cell(text: str) -> None:
    with pytest.raises(BadConfig):
        Member(text, CELL)
    with pytest.raises(BadConfig):
        Member("member-1", text)


def test_a_certificate_is_for_the_members_that_it_names_letter_by_letter() -> None:
    is_it_one, comes_in = found_there(ONE), let_in(CELL)
    assert ONE.host_name == "member-1.berlin.roskva"
    for good in (shown(ONE.host_name), shown("node.example.com", ONE.host_name)):
        assert is_it_one(good) is None
        assert comes_in(good) is None
    assert is_it_one(shown(TWO.host_name)) is not None
    assert comes_in(shown(TWO.host_name)) is None
    for bad in (
        {},
        shown(),
        shown("*.berlin.roskva"),
        shown("member-1.*.roskva"),
        shown("member-1.hamburg.roskva"),
        shown("member-1.berlin.roskva."),
        shown("MEMBER-1.berlin.roskva"),
        shown("x.member-1.berlin.roskva"),
        shown("member-1.berlin.roskva.example.com"),
        shown("berlin.roskva"),
        shown(".berlin.roskva"),
        {"subject": ((("commonName", ONE.host_name),),)},
        {"subjectAltName": (("URI", ONE.host_name), ("email", ONE.host_name))},
    ):
        assert is_it_one(bad) is not None, bad
        assert comes_in(bad) is not None, bad


def test_what_is_wrong_with_files_is_said_by_name(tmp_path: Path) -> None:
    authority = MembersAuthority(tmp_path)
    good = authority.files(ONE)
    MemberCertificates(ONE, good)
    other = authority.files(TWO)
    expired = authority.put(
        "expired", issued(authority.ca, ONE.host_name, begins_in_days=-9, days=8)
    )
    nameless = authority.put("nameless", issued(authority.ca, common_name=ONE.host_name))
    (tmp_path / "garbage").write_text("garbage")
    for files, words in (
        (other, f"is for {TWO.host_name}, and this is {ONE.host_name}"),
        (expired, "expired.crt has expired"),
        (nameless, "is for no host name at all"),
        (CertificateFiles(good.certificate, other.key, good.ca), "is not the key of"),
        (CertificateFiles(good.certificate, good.key, tmp_path / "none"), "none cannot be read"),
        (CertificateFiles(good.certificate, good.key, tmp_path / "garbage"), "no certificate in"),
        (CertificateFiles(tmp_path / "garbage", good.key, good.ca), "no certificate and key"),
    ):
        with pytest.raises(BadConfig, match=words):
            MemberCertificates(ONE, files)


def test_what_is_wrong_with_new_files_leaves_the_old_ones_in_use(tmp_path: Path) -> None:
    authority = MembersAuthority(tmp_path)
    certificates = authority.certificates(ONE)
    before = certificates.dialling
    authority.put(str(ONE), authority.ca.member(TWO, 30))
    with pytest.raises(BadConfig):
        certificates.reload()
    assert certificates.dialling is before
    authority.put(str(ONE), CertificateAuthority.create().member(ONE, 30))
    certificates.reload()
    assert certificates.dialling is not before
