"""`roskva doctor`: what it finds on this machine, and how it judges others."""

import json
import shutil
import socket
from pathlib import Path

import pytest
import typer
from tests.cli.fake_node import FakeNode
from typer.testing import CliRunner, Result

from roskva.cli import doctor
from roskva.cli.certs import CertificateAuthority, make
from roskva.cli.doctor import Finding
from roskva.cli.options import add_commands
from roskva.config import Config, LimitsConfig, NodeConfig, TlsConfig
from roskva.pipeline.machine import parse_java_version
from roskva.server.access.keys import token_keys

GOLDEN = Path(__file__).parents[1] / "golden/v1"
MIB = 1 << 20

app = typer.Typer()
add_commands(app, doctor.__name__)


@pytest.fixture(autouse=True)
def free_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runs on this machine, these tests ask for any free port."""
    monkeypatch.setenv("ROSKVA_PORT", "0")
    monkeypatch.setenv("ROSKVA_MQTT_PORT", "0")


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words, env={"COLUMNS": "200"})


def test_this_machine_is_looked_at(tmp_path: Path) -> None:
    result = run("--data", str(tmp_path / "data"), "--json")
    findings = {finding["what"]: finding for finding in json.loads(result.stdout)}
    assert set(findings) == {
        "python",
        "uvloop",
        "spark",
        "open files",
        "memory",
        "data",
        "file system",
        "free disk",
        "fsync",
        "clock",
        "port",
        "mqtt port",
        "exposure",
        "tls",
    }
    assert findings["data"]["found"].endswith("will be created")
    assert all(f["verdict"] == "ok" or f["do"] or "cannot" in f["found"] for f in findings.values())
    bad = any(finding["verdict"] == "bad" for finding in findings.values())
    assert result.exit_code == (1 if bad else 0)
    assert list(tmp_path.iterdir()) == []


def test_what_is_bad_is_exit_code_1_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setenv("ROSKVA_MQTT_PORT", str(other.getsockname()[1]))
        result = run("--data", str(tmp_path))
    assert result.exit_code == 1
    assert "choose another with --mqtt-port" in result.stdout
    assert result.stdout.rstrip().endswith("1 bad")


def test_ports_of_a_node_that_runs_are_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: FakeNode
) -> None:
    answers = {"/healthz": b"ok\n", "/v1/status": {"version": "0.1.0"}}
    node.answer = lambda _, path, __: (200, answers[path])
    monkeypatch.setenv("ROSKVA_PORT", node.url.rpartition(":")[2])
    monkeypatch.setattr(doctor, "_TIMEOUT_S", 60.0)
    result = run("--data", str(tmp_path), "--json")
    [port] = [finding for finding in json.loads(result.stdout) if finding["what"] == "port"]
    assert port["verdict"] == "ok"
    assert port["found"].endswith("a Roskva node 0.1.0 is running")


def test_an_address_of_another_machine() -> None:
    finding = doctor.check_port("port", "192.0.2.1", 7600, None)
    assert (finding.verdict, finding.do) == ("bad", "choose another address with --host")


def test_a_bad_configuration_is_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "roskva.toml").write_text("[node]\nprot = 1\n")
    result = run("--config", str(tmp_path / "roskva.toml"))
    assert result.exit_code == 2
    assert "did you mean port?" in result.stderr


# Who can reach it.


def test_what_is_open_beyond_loopback_is_bad(tmp_path: Path) -> None:
    (tmp_path / "roskva.toml").write_text('[node]\nhost = "0.0.0.0"\n')
    result = run("--config", str(tmp_path / "roskva.toml"), "--json")
    assert result.exit_code == 1
    [found] = [f for f in json.loads(result.stdout) if f["what"] == "exposure"]
    assert found["verdict"] == "bad"
    assert "[tls]" in found["found"]
    assert "[apps.NAME]" in found["do"]
    assert "--insecure" in found["do"]


def test_certificates_are_looked_at(tmp_path: Path) -> None:
    make(tmp_path, [], [], 30)
    tls = TlsConfig(certificate=tmp_path / "server.crt", key=tmp_path / "server.key")

    def look() -> tuple[str, str]:
        finding = doctor.check_certificate(Config(tls=tls))
        return finding.verdict, finding.found

    assert look() == ("ok", f"{tmp_path}/server.crt, good for 29 days")
    (tmp_path / "server.key").chmod(0o640)
    assert look()[0] == "warn"
    for days, verdict, said in ((3, "warn", "expires in 2 days"), (-1, "bad", "has expired")):
        issued = CertificateAuthority.create().server(["localhost"], days)
        (tmp_path / "server.crt").write_bytes(issued.certificate)
        (tmp_path / "server.key").write_bytes(issued.key)
        found = look()
        assert found[0] == verdict
        assert said in found[1]
    (tmp_path / "server.key").unlink()
    assert look()[0] == "bad"


# The data directory.


def test_a_data_directory_that_others_can_read_is_worth_a_warning(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(GOLDEN, data)
    data.chmod(0o750)
    assert check_data(data).verdict == "warn"
    assert check_data(data).do == f"chmod 700 {data}; a node that starts does it"
    data.chmod(0o700)
    token_keys(data)
    (data / "token.key").chmod(0o644)
    assert check_data(data).verdict == "warn"
    assert f"chmod 600 {data}/token.key" in str(check_data(data).do)


def check_data(data: Path, shards: int | None = None, matchers: int = 0) -> Finding:
    return doctor.check_data(NodeConfig(data=data, shards=shards, matchers=matchers))


def test_a_data_directory_is_opened_and_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(GOLDEN, data)
    data.chmod(0o700)
    before = sorted(path.name for path in data.iterdir())
    assert check_data(data) == Finding("data", "ok", f"{data}, 2 shards")
    assert check_data(data, shards=2).verdict == "ok"
    assert check_data(data, shards=3).do == "set shards under [node] to 2, or leave it out"
    assert check_data(data, matchers=3).do == "set matchers under [node] to 2 or less"
    (data / "meta").write_bytes(b"x")
    assert check_data(data).verdict == "bad"
    assert before == sorted(path.name for path in data.iterdir())


def test_a_data_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert check_data(tmp_path / "file/data").verdict == "bad"


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [("ext4", "ok"), ("xfs", "ok"), ("nfs4", "bad"), ("tmpfs", "warn"), (None, "warn")],
)
def test_file_systems(kind: str | None, verdict: str) -> None:
    assert doctor.check_file_system(Path("data"), kind).verdict == verdict


def test_the_file_system_of_a_path_is_that_of_its_mount() -> None:
    assert doctor.file_system_of(Path("/proc/self")) == "proc"


@pytest.mark.parametrize(
    ("times", "verdict"),
    [([0.004] * 9 + [1.0], "ok"), ([0.05] * 9, "warn"), ([1e-6] * 9, "warn")],
)
def test_fsync_is_judged_by_what_is_usual(times: list[float], verdict: str) -> None:
    assert doctor.judge_fsync(times).verdict == verdict


# The machine.


@pytest.mark.parametrize(
    ("limits", "wanted", "verdict"),
    [
        ((20_000, 20_000), None, "ok"),
        ((1024, 1_048_576), None, "warn"),
        ((1024, 1024), None, "warn"),
        ((1024, 1024), 500, "ok"),
        ((20_000, 20_000), 100_000, "warn"),
        ((-1, -1), None, "ok"),
    ],
)
def test_open_files(limits: tuple[int, int], wanted: int | None, verdict: str) -> None:
    config = Config(limits=LimitsConfig(max_connections=wanted))
    assert doctor.check_open_files(config, limits).verdict == verdict


@pytest.mark.parametrize(
    ("wall", "drift", "kept", "verdict"),
    [
        (2e9, 0.0, True, "ok"),
        (2e9, 0.0, None, "ok"),
        (2e9, 0.0, False, "warn"),
        (2e9, -3.0, True, "warn"),
        (0.0, 0.0, True, "bad"),
    ],
)
def test_clocks(wall: float, drift: float, kept: bool | None, verdict: str) -> None:
    assert doctor.judge_clock(wall, drift, kept).verdict == verdict


@pytest.mark.parametrize(
    ("available", "verdict"), [(None, "warn"), (100 * MIB, "warn"), (600 * MIB, "ok")]
)
def test_memory(available: int | None, verdict: str) -> None:
    assert doctor.check_memory(available).verdict == verdict


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.19" 2026-04-21', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("command not found", None),
    ],
)
def test_java_versions(said: str, version: int | None) -> None:
    assert parse_java_version(said) == version
