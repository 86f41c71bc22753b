"""`roskva certs`: what it makes, what may read it, and what it leaves alone."""

import ssl
import stat
import tomllib
from pathlib import Path

import pytest
import typer
from cryptography import x509
from typer.testing import CliRunner, Result

from roskva.cli import certs
from roskva.cli.options import add_commands
from roskva.net.tls import Tls, client_context

app = typer.Typer()
add_commands(app, certs.__name__)


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def alternatives(file: Path) -> list[str]:
    found = x509.load_pem_x509_certificate(file.read_bytes()).extensions
    names = found.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def test_it_makes_a_ca_a_server_and_clients(tmp_path: Path) -> None:
    place = tmp_path / "certs"
    result = run(place, "--client", "alice", "--client", "bob")
    assert result.exit_code == 0, result.output
    names = ("ca", "server", "client-alice", "client-bob")
    files = {f"{name}.{kind}" for name in names for kind in ("crt", "key")}
    assert {path.name for path in place.iterdir()} == files
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    for key in place.glob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert alternatives(place / "server.crt") == ["localhost", "127.0.0.1", "::1"]


def test_members_have_a_ca_and_names_of_their_own(tmp_path: Path) -> None:
    assert run(tmp_path, "--member", "member-1.berlin").exit_code == 0
    assert run(tmp_path, "--member", "member-2.berlin").exit_code == 0
    names = ("ca", "member-member-1.berlin", "member-member-2.berlin")
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{name}.{kind}" for name in names for kind in ("crt", "key")
    }
    assert alternatives(tmp_path / "member-member-2.berlin.crt") == ["member-2.berlin.roskva"]
    for words in (
        ("--member", "member-2.berlin"),
        ("--member", "berlin"),
        ("--member", "Member 1.berlin"),
        ("--member", "member-1.new.york"),
        ("--member", "member-3.berlin", "--client", "alice"),
        ("--member", "member-3.berlin", "--san", "node.example.com"),
    ):
        assert run(tmp_path, *words).exit_code == 2, words
    assert not list(tmp_path.glob("*3*"))


def test_what_it_prints_can_be_used(tmp_path: Path) -> None:
    result = run(tmp_path, "--client", "alice")
    lines = result.output[result.output.index("[tls]") :].partition("\n\n")[0]
    told = tomllib.loads(lines)["tls"]
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(told["certificate"], told["key"])
    tls = Tls(told["client_ca"], tmp_path / "client-alice.crt", tmp_path / "client-alice.key")
    assert client_context("https://localhost", tls) is not None
    assert f"--cert {tmp_path}/client-alice.crt" in result.output


def test_names_of_the_server_can_be_given(tmp_path: Path) -> None:
    assert run(tmp_path, "--san", "node.example.com", "--san", "10.0.0.5").exit_code == 0
    assert alternatives(tmp_path / "server.crt") == ["node.example.com", "10.0.0.5"]


def test_clients_are_added_later_and_nothing_is_replaced(tmp_path: Path) -> None:
    assert run(tmp_path, "--client", "alice").exit_code == 0
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert run(tmp_path, "--client", "bob").exit_code == 0
    for words in ([], ["--client", "bob"], ["--client", "eve", "--san", "x"]):
        result = run(tmp_path, *words)
        assert result.exit_code == 2
        assert "nothing is replaced" in result.output
    assert {path: path.read_bytes() for path in before} == before
    assert not (tmp_path / "client-eve.crt").exists()


def test_a_server_that_was_removed_is_made_again_by_the_same_ca(tmp_path: Path) -> None:
    run(tmp_path)
    ca = (tmp_path / "ca.crt").read_bytes()
    for file in ("server.crt", "server.key"):
        (tmp_path / file).unlink()
    assert run(tmp_path).exit_code == 0
    assert (tmp_path / "ca.crt").read_bytes() == ca
    issued = x509.load_pem_x509_certificate((tmp_path / "server.crt").read_bytes())
    issued.verify_directly_issued_by(x509.load_pem_x509_certificate(ca))


@pytest.mark.parametrize(
    "words", [["--client", "../eve"], ["--client", ""], ["--san", "a b"], ["--days", "0"]]
)
def test_bad_names_are_refused_before_anything_is_written(tmp_path: Path, words: list[str]) -> None:
    assert run(tmp_path / "new", *words).exit_code == 2
    assert not (tmp_path / "new").exists()


def test_a_ca_that_is_none_is_refused(tmp_path: Path) -> None:
    for file in ("ca.crt", "ca.key"):
        (tmp_path / file).write_text("nothing")
    result = run(tmp_path)
    assert result.exit_code == 2
    assert "no CA of ours" in result.output
