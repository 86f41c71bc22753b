"""The systemd unit: well-formed, and as closed as it says."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy/roskva.service"
MOST_EXPOSURE = 20
"""Of 100; what systemd calls OK ends at 40."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on this machine"
)


def analyze(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, timeout=60)


@needs_systemd
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    """With a program in it that is there: it wants to see that it can be started."""
    there = shutil.which("true") or ""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/roskva/bin/roskva", there))
    done = analyze("verify", "--man=no", str(unit))
    assert (done.returncode, done.stderr.strip()) == (0, "")


@needs_systemd
def test_the_sandbox_leaves_little_open() -> None:
    help_text = analyze("--help").stdout
    if "--offline" not in help_text:
        pytest.skip("this systemd cannot judge a unit that is not installed")
    done = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSURE}", str(UNIT))
    assert done.returncode == 0, done.stdout[-2000:]


def test_the_unit_starts_reloads_and_keeps_its_data_to_itself() -> None:
    lines = dict(
        line.split("=", 1)
        for line in UNIT.read_text().splitlines()
        if "=" in line and not line.startswith("#")
    )
    assert lines["ExecStart"].endswith("--log json")
    assert "-HUP" in lines["ExecReload"]
    assert lines["StateDirectoryMode"] == "0700"
    assert lines["NoNewPrivileges"] == "yes"
    assert lines["CapabilityBoundingSet"] == ""
