"""Documents are held to what the code does: commands run, links lead somewhere, names exist."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from benchmarks.ports import free_port
from tests.sources.servers import unprivileged_postgres
from tools.documents import DOCUMENTS as MADE
from tools.limits_page import ANSWERS
from typer.testing import CliRunner
from verification.exploration.bounds import CONFIGURATIONS
from verification.exploration.search import WITHIN_BOUNDS
from verification.mutants import MAX_SEEDS

from roskva.channels.mqtt import MqttLimits
from roskva.cli.main import application
from roskva.config import LimitsConfig, settings
from roskva.simulation.tape import KINDS

app: Final = application()
ROOT: Final = Path(__file__).parents[1]
DOCUMENTS: Final = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("spec/**/*.md"))
)
TEXT: Final = {name: (ROOT / name).read_text() for name in DOCUMENTS}
FOR_USERS: Final = [name for name in DOCUMENTS if name == "README.md" or name.startswith("docs/")]

NOT_OURS: Final = {"--help", "--install-completion", "--show-completion"}

every_document = pytest.mark.parametrize("name", DOCUMENTS)


# What documents contain.


def blocks(text: str, language: str = r"\w*") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def prose(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def code(text: str) -> Iterator[str]:
    """Every line of every block, and everything in backticks."""
    for block in blocks(text):
        yield from block.splitlines()
    yield from re.findall(r"`([^`]+)`", prose(text))


def headings(text: str) -> set[str]:
    """As the anchors that a reader can link to."""
    titles = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


# Commands.


def command_tree(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from command_tree(child, f"{path} {name}")


TREE: Final = dict(command_tree(typer.main.get_command(app), "roskva"))
LEAVES: Final = [path for path, command in TREE.items() if not hasattr(command, "commands")]


def options_of(path: str) -> set[str]:
    options = {option for param in TREE[path].params for option in param.opts}
    return {option for option in options if option.startswith("--")} - NOT_OURS


def commands_in(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each `roskva …` as the longest command it may be, and its options."""
    for line in code(text):
        for call in re.findall(r"(?:^|[\s/])(roskva(?: [^|#]*)?)$", line.split("|")[0].strip()):
            words = call.split()
            path = words[0]
            for word in words[1:]:
                if not re.fullmatch(r"[a-z]+", word) or path in LEAVES:
                    break
                path += f" {word}"
            yield path, re.findall(r"--[a-z-]+", call)


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_and_option_is_documented(path: str) -> None:
    about = [TEXT[name] for name in FOR_USERS if path in TEXT[name]]
    assert about, f"no document speaks of {path}"
    missing = {option for option in options_of(path) if not any(option in text for text in about)}
    assert not missing


@every_document
def test_commands_in_documents_exist(name: str) -> None:
    for path, options in commands_in(TEXT[name]):
        assert path in TREE, f"there is no {path}"
        known = {
            option for command in TREE if command.startswith(path) for option in options_of(command)
        }
        assert set(options) - NOT_OURS <= known, path


@pytest.mark.parametrize("path", TREE)
def test_help_is_there_and_shows_an_example(path: str) -> None:
    result = CliRunner().invoke(app, [*path.split()[1:], "--help"])
    assert result.exit_code == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", result.output)
    if path in LEAVES:
        assert re.search(rf"Examples?:\s+{path} ", plain)


def test_every_fault_is_explained() -> None:
    assert [kind for kind in KINDS if f"`{kind}`" not in TEXT["docs/simulation.md"]] == []


# What can be pasted.


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Where a reader stands: the project's directory, with a data directory to play with."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "verification").symlink_to(ROOT / "verification")
    shutil.copytree(ROOT / "tests/golden/v1", tmp_path / "data")
    return tmp_path


def run(project: Path, *command: str) -> None:
    path = f"{sys.prefix}/bin:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=project,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.parametrize("name", ["README.md", "docs/operations.md"])
def test_what_is_shown_for_the_shell_works_when_pasted(name: str, project: Path) -> None:
    script = "\n".join(blocks(TEXT[name], "sh"))
    pasted = [line for line in script.splitlines() if not line.startswith("make ")]
    assert len(pasted) > 3
    run(project, "sh", "-eux", "-c", "\n".join(pasted))


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if blocks(TEXT[name], "python")])
def test_what_is_shown_in_python_works(name: str, project: Path) -> None:
    for block in blocks(TEXT[name], "python"):
        run(project, sys.executable, "-c", block)


def test_the_tour_of_a_database_works_when_pasted(tmp_path: Path) -> None:
    """Several terminals: what goes on in the others has to be seen before the next is used."""
    tour = TEXT["docs/sources.md"].partition("## Five minutes")[2].partition("\n## ")[0]
    database, serve, watch, change, end = blocks(tour, "sh")
    assert watch.startswith("roskva watch")
    _, insert, update, explain, cat = change.splitlines()
    script = f"""
trap 'kill $node; {end.strip()} -m immediate' EXIT
{database}
{serve.rstrip()} &
node=$!
until roskva status | grep -q reading; do sleep 0.2; done
{watch.rstrip()} > told &
watch=$!
{insert}
until grep -q 250 told; do sleep 0.1; done
{update}
wait $watch
grep 199 told
{explain}
{cat}
"""
    database_port, port = free_port(), free_port()
    ports = {"ROSKVA_PORT": str(port), "ROSKVA_MQTT_PORT": str(free_port())}
    with unprivileged_postgres() as (place, path):
        done = subprocess.run(
            ["timeout", "100", "sh", "-eux", "-c", script.replace("5433", str(database_port))],
            cwd=place,
            env={**os.environ, **ports, "PATH": path, "ROSKVA_URL": f"http://127.0.0.1:{port}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "has updated it." in " ".join(done.stdout.split())


# Make.


def make_targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    return {target for line in phony for target in line.split()}


def makes_in(text: str) -> set[str]:
    calls = [re.match(r"make((?: [A-Z]+=\S+)*) ([a-z-]+)", line.strip()) for line in code(text)]
    return {call[2] for call in calls if call}


@every_document
def test_targets_in_documents_exist(name: str) -> None:
    assert makes_in(TEXT[name]) <= make_targets()


def test_every_target_is_explained_to_contributors() -> None:
    assert make_targets() <= makes_in(TEXT["CONTRIBUTING.md"])


# Names and links.


@every_document
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(TEXT[name])):
        if re.match(r"(https?|mailto):", target):
            continue
        path, _, anchor = target.partition("#")
        found = (ROOT / name).parent / path if path else ROOT / name
        assert found.exists(), target
        if anchor:
            assert anchor in headings(found.read_text()), target


@every_document
def test_modules_in_documents_exist(name: str) -> None:
    places = (ROOT, ROOT / "src", ROOT / "src/roskva", (ROOT / name).parent)
    for module in re.findall(r"`([\w./]+\.py)`", prose(TEXT[name])):
        assert any((place / module).exists() for place in places), module


def test_every_package_has_its_place_in_the_architecture() -> None:
    parts = [p for p in (ROOT / "src/roskva").iterdir() if not p.name.startswith(("_", "py."))]
    names = [f"`{part.name}/`" if part.is_dir() else f"`{part.name}`" for part in parts]
    assert [name for name in names if name not in TEXT["ARCHITECTURE.md"]] == []


def test_every_line_of_the_security_checklist_names_a_test_that_exists() -> None:
    checklist = TEXT["docs/security.md"].partition("## Checklist")[2].partition("\n## ")[0]
    lines = [line for line in checklist.splitlines() if line.startswith("| ")][1:]
    assert len(lines) > 20
    for line in lines:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", line)
        assert named, line
        for file, test in named:
            assert re.search(rf"def {test}\(", (ROOT / file).read_text()), f"{file}::{test}"


def test_every_decision_is_listed_and_none_is_missing_between() -> None:
    decisions = [path.name for path in (ROOT / "docs/decisions").glob("[0-9]*.md")]
    listed = TEXT["docs/decisions/README.md"]
    assert [name for name in decisions if f"({name})" not in listed] == []
    numbers = [int(number) for number in re.findall(r"^\| \[?(\d{4})", listed, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_architecture_says_who_alone_knows_what_as_it_is_checked() -> None:
    contracts = re.findall(r'^name = "(Only .*)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    assert contracts
    said = " ".join(TEXT["ARCHITECTURE.md"].split())
    assert [name for name in contracts if f"{name}." not in said] == []


def test_every_limit_of_rates_and_numbers_is_among_what_is_protected() -> None:
    protected = TEXT["SECURITY.md"].partition("## What is protected today")[2].partition("\n## ")[0]
    limits = [each.key for each in settings(LimitsConfig) if "_per_" in each.key]
    assert [key for key in limits if f"`{key}`" not in protected] == []


def test_what_is_said_of_mqtt_limits_is_what_holds() -> None:
    text = TEXT["docs/mqtt.md"].partition("### Limits")[2].partition("\n## ")[0]
    said = dict(re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|$", text, re.MULTILINE))
    limits, mqtt = LimitsConfig(), MqttLimits()
    numbers = {
        "a packet": limits.max_frame_bytes,
        "topics in a SUBSCRIBE": mqtt.max_filters,
        "SUBSCRIBE and UNSUBSCRIBE packets unconfirmed": mqtt.max_requests,
        "answers not read by the client": mqtt.max_unread_bytes,
    }
    assert {what: said[what].startswith(f"{most:,}") for what, most in numbers.items()} == (
        dict.fromkeys(numbers, True)
    )
    assert said["CONNECT after the connection"] == (
        f"`handshake_seconds` ({limits.handshake_seconds})"
    )


def test_what_is_said_of_planted_bugs_and_exploration_is_what_runs() -> None:
    text = " ".join(TEXT["docs/simulation.md"].split())
    words = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")
    assert f"seeds 0 to {MAX_SEEDS - 1};" in text
    assert f"{len(CONFIGURATIONS)} clusters with" in text
    assert f"{words[len(WITHIN_BOUNDS)]} planted bugs must show in clusters" in text


def test_what_is_streamed_in_documents_comes_to_an_end() -> None:
    """A stream goes on when nothing happens: whoever cuts it off by lines waits for the next."""
    streams = [
        line
        for name in FOR_USERS
        for block in blocks(TEXT[name], "sh")
        for line in block.splitlines()
        if "curl" in line and "/v1/events" in line
    ]
    assert streams
    assert [line for line in streams if not re.search(r" -m \d ", line)] == []


# Pages that are made from the code.


@pytest.mark.parametrize("name", MADE)
def test_a_page_is_what_the_code_would_make_of_it_now(name: str) -> None:
    assert MADE[name]() == TEXT[name], "renew it with: make documents"


def test_every_limit_says_what_it_answers() -> None:
    assert set(ANSWERS) == {setting.key for setting in settings(LimitsConfig)}


# What belongs to the machine it was written on.

FORBIDDEN: Final = re.compile(
    "|".join(
        [
            *(rf"(?<![\w.])/{place}/" for place in ("work", "root", "home")),
            *(rf"\b{host}\." for host in ("pypi", "pythonhosted")),
            *(rf"^--{kind}" for kind in ("index-url", "extra-index-url", "trusted-host")),
        ]
    ),
    re.MULTILINE,
)


def test_no_file_speaks_of_the_machine_it_was_written_on() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True
    ).stdout
    found = []
    for name in filter(None, tracked.split("\0")):
        path = ROOT / name
        if path.is_file() and (
            match := FORBIDDEN.search(path.read_bytes().decode(errors="replace"))
        ):
            found.append(f"{name}: {match.group()}")
    assert found == []


@pytest.mark.parametrize(
    "line", ["see /wo" + "rk/main", "--index-" + "url x", "https://py" + "pi.x/"]
)
def test_the_machine_would_be_recognised(line: str) -> None:
    assert FORBIDDEN.search(line)
