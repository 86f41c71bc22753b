"""Settings: where they come from, which word is the last, and what is said of wrong ones."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from roskva.channels.mqtt import MqttLimits
from roskva.cli.config import template
from roskva.config import (
    NAMED,
    SECTIONS,
    AppConfig,
    Config,
    FeedConfig,
    LimitsConfig,
    NodeConfig,
    SessionsConfig,
    files_of_store,
    load,
    settings,
)
from roskva.core.registrar import RegistrarConfig
from roskva.errors import BadConfig
from roskva.feed.log import LogConfig
from roskva.server.directory import DEFAULT_SHARDS, MAX_SHARDS
from roskva.wire.messages import MAX_FRAME_BYTES


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "roskva.toml"


def loaded(file: Path, text: str, **more: Any) -> Config:
    file.write_text(text)
    return load(file, more.get("overrides"), more.get("environment", {}))


def complaints(file: Path, text: str, **more: Any) -> list[str]:
    with pytest.raises(BadConfig) as refused:
        loaded(file, text, **more)
    return str(refused.value).replace(f"{file.parent}/", "").splitlines()


def test_nothing_need_be_set(file: Path) -> None:
    assert load(None, None, {}) == loaded(file, "") == Config()


def test_every_section_is_read(file: Path) -> None:
    config = loaded(
        file,
        """
        [node]
        host = "0.0.0.0"
        mqtt_port = "off"
        data = "/var/lib/roskva"
        [defaults]
        max_payload_bytes = 16_384
        [feed]
        retention_hours = "off"
        commit_wait_ms = 1
        [limits]
        max_connections = 10
        """,
    )
    assert config == Config(
        node=NodeConfig(host="0.0.0.0", mqtt_port=None, data=Path("/var/lib/roskva")),
        defaults=AppConfig(max_payload_bytes=16_384),
        feed=FeedConfig(retention_hours=None, commit_wait_ms=1.0),
        limits=LimitsConfig(max_connections=10),
    )


def test_the_last_word_wins(file: Path) -> None:
    text = "[node]\nport = 1\nmqtt_port = 2\nregistrars = 3\n"
    environment = {"ROSKVA_MQTT_PORT": "20", "ROSKVA_REGISTRARS": "30", "ROSKVA_HOST": ""}
    overrides = {"node.registrars": 200, "node.matchers": None}
    node = loaded(file, text, environment=environment, overrides=overrides).node
    assert node == NodeConfig(port=1, mqtt_port=20, registrars=200)


def test_a_channel_can_be_turned_off_from_anywhere(file: Path) -> None:
    assert load(None, {"node.mqtt_port": "off"}, {}).node.mqtt_port is None
    assert load(None, None, {"ROSKVA_MQTT_PORT": "off"}).node.mqtt_port is None


def test_an_app_takes_the_rest_from_the_defaults(file: Path) -> None:
    text = '[defaults]\nversions = "assigned"\n[apps.home]\nfast_path = false\n[apps.plain]\n'
    config = loaded(file, text)
    assert config.app("home") == AppConfig(versions="assigned", fast_path=False)
    assert config.app("plain") == config.app("never-heard-of") == config.defaults
    assert list(config.apps) == ["home", "plain"]


def test_a_flag_changes_the_default_and_not_what_an_app_chose(file: Path) -> None:
    config = loaded(
        file, '[apps.chosen]\nversions = "app"\n', overrides={"defaults.versions": "assigned"}
    )
    assert config.app("chosen").versions == "app"
    assert config.app("other").versions == "assigned"


def test_everything_wrong_is_named_at_once_with_its_line(file: Path) -> None:
    text = """\
port = 3
[node]
prot = 7601
shards = true
[apps.Contacts]
[apps.home]
versions = "assinged"
host = "x"
[fed]
"""
    assert complaints(file, text, environment={"ROSKVA_PORT": "many"}) == [
        "roskva.toml:1: port belongs under [node]",
        "roskva.toml:5: an app is 1 to 63 of a-z, 0-9 and '-'; got 'Contacts': "
        "rename [apps.Contacts]",
        "roskva.toml:9: there is no section [fed]; did you mean feed?",
        "roskva.toml:3: [node] has no key prot; did you mean port?",
        "roskva.toml:4: shards must be a whole number from 1 to 1,024, not true",
        'ROSKVA_PORT: port must be a whole number from 0 to 65,535, not "many"',
        'roskva.toml:7: versions must be "app" or "assigned", not "assinged"',
        "roskva.toml:8: host does not belong under [apps.home]: move it to [node] or [admin]",
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[node\n", "roskva.toml:1: this is not TOML"),
        ("[node]\nport = \n", "roskva.toml:2: this is not TOML"),
        ("[node]\nport = 1\nport = 2\n", "roskva.toml:3: this is not TOML"),
        ("node = 3\n", "roskva.toml:1: node is a section: write [node]"),
        ("[apps]\nhome = 3\n", "roskva.toml:2: apps.home is a section: write [apps.home]"),
        ("node.port = -1\n", "roskva.toml:1: port must be"),
        ("node = { port = -1 }\n", "roskva.toml:1: port must be"),
        ("[node]\nport = '80'\n", "roskva.toml:2: port must be a whole number"),
        ("[node]\nport = 'off'\n", "roskva.toml:2: port must be a whole number"),
        ("[node]\nport = 1883\n", "roskva.toml:2: port and mqtt_port are both 1883"),
        ("[node]\nshards = 2\nmatchers = 3\n", "roskva.toml:3: 3 matchers cannot share 2 shards"),
        ("[feed]\nretention_bytes = 2_000_000\n", "roskva.toml:2: retention_bytes is below"),
        (
            "[feed]\nretention_bytes = 100_000_000\nlast_resort_bytes = 90_000_000\n",
            "roskva.toml:3: last_resort_bytes is below retention_bytes",
        ),
        (
            "[limits]\nmax_frame_bytes = 4096\n[apps.big]\nmax_payload_bytes = 8192\n",
            "roskva.toml:4: a payload of 8192 bytes does not fit into max_frame_bytes",
        ),
        (
            "[sessions]\nheartbeat_seconds = 20\nresend_seconds = 100\n",
            "roskva.toml:3: a session is over after 80 s of silence, and would be looked at",
        ),
        (
            "[sessions]\nheartbeat_seconds = 20\nevents_ping_seconds = 30\n",
            "roskva.toml:3: a stream of events is heard of with its pings",
        ),
        (
            "[node]\ntoken_hours = 1\n[sessions]\nresend_seconds = 2000\n",
            "roskva.toml:4: tokens are replaced half-way to their end",
        ),
        ("[limits]\nwishes = 3\n", "roskva.toml:2: [limits] has no key wishes; it may"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place_and_the_way_out(
    file: Path, text: str, sentence: str
) -> None:
    [complaint] = complaints(file, text)
    assert complaint.startswith(sentence)


def test_a_flag_is_named_as_it_was_typed() -> None:
    with pytest.raises(BadConfig, match=r"^--mqtt-port: mqtt_port must be"):
        load(None, {"node.mqtt_port": 70_000}, {})


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="does not exist"):
        load(tmp_path / "nowhere.toml", None, {})
    with pytest.raises(BadConfig, match="cannot be read"):
        load(tmp_path, None, {})
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(BadConfig, match="not UTF-8"):
        load(tmp_path / "bytes", None, {})


def test_connections_follow_the_open_file_limit() -> None:
    assert LimitsConfig().connections(20_000, 4) == 20_000 - 128 - 4 * 268
    assert LimitsConfig(max_connections=100).connections(20_000, 4) == 100
    assert LimitsConfig(max_connections=100_000).connections(1024, 4) == 768
    assert LimitsConfig().connections(1024, 100) == 256
    assert LimitsConfig().connections(64, 4) == 16


def test_the_files_of_stores_and_clients_are_fewer_than_a_process_may_open() -> None:
    for open_files in (1024, 4096, 20_000, 1_000_000):
        for shards in (1, 4, 16):
            stores = shards * files_of_store(open_files, shards)
            clients = LimitsConfig().connections(open_files, shards)
            assert stores + clients + 128 <= open_files
    assert files_of_store(1024, 4) == 20
    assert files_of_store(20_000, 4) == 256


def test_feeds_take_a_share_of_the_disk_or_less() -> None:
    gib = 1 << 30
    assert FeedConfig().max_bytes(64 * gib, 4) == 4 * gib
    assert FeedConfig(retention_bytes=gib).max_bytes(64 * gib, 4) == gib
    assert FeedConfig(last_resort_bytes=2 * gib).max_bytes(64 * gib, 4) == 2 * gib
    assert FeedConfig().max_bytes(gib, 1024) == FeedConfig().segment_bytes
    unlimited = FeedConfig(retention_share=None)
    assert unlimited.max_bytes(64 * gib, 4) is None
    assert replace(unlimited, last_resort_bytes=gib).max_bytes(64 * gib, 4) is None


def test_defaults_are_those_of_the_parts_they_configure() -> None:
    log = LogConfig()
    feed = FeedConfig()
    assert feed.segment_bytes == log.segment_bytes
    assert feed.retention_hours == (log.retention.max_age_us or 0) / 3_600_000_000
    assert feed.retention_bytes is log.retention.max_bytes
    assert LimitsConfig().max_frame_bytes == MAX_FRAME_BYTES
    sessions, core = SessionsConfig(), RegistrarConfig("r", 1)
    assert sessions.heartbeat_seconds == core.heartbeat
    assert sessions.missed_heartbeats == core.missed_heartbeats
    assert sessions.resend_seconds == core.scan_interval
    assert sessions.ack_flush_seconds == core.ack_flush
    assert sessions.mqtt_keep_alive_seconds == MqttLimits().max_keep_alive_s
    [shards] = [s for s in settings(NodeConfig) if s.key == "shards"]
    assert shards.expected.endswith(f"to {MAX_SHARDS:,}")
    assert f"{DEFAULT_SHARDS} if this is not set" in shards.description


def test_defaults_pass_their_own_checks(file: Path) -> None:
    for section, struct in SECTIONS.items():
        if section in NAMED:
            continue
        for setting in settings(struct):
            assert setting.description.endswith(".")
            if setting.default is not None:
                value = msgspec.json.encode(setting.default, enc_hook=str).decode()
                assert loaded(file, f"[{section}]\n{setting.key} = {value}\n") == Config()


DATABASE = '[source.shop]\nurl = "postgresql://db/shop"\ntables = ["products"]\n'


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[source.shop]\n", "say where the database is"),
        ('[source.shop]\nurl = "postgresql://db/shop"\n', "say what is published"),
        (f'{DATABASE}app = "No App"\n', "an app is"),
        (f'{DATABASE}[source.shop.keys]\nstock = ["id"]\n', "not among the tables"),
        (f'{DATABASE}{DATABASE.replace("shop]", "other]")}app = "shop"\n', "an app has one source"),
        (f'{DATABASE}app = "roskva-probe"\n', "kept for the prober"),
        (f'{DATABASE}[apps.shop]\nversions = "assigned"\n', "numbers its versions"),
    ],
)
def test_what_is_wrong_with_a_database_is_said_with_its_place(
    file: Path, text: str, what: str
) -> None:
    (complaint,) = complaints(file, text)
    assert what in complaint
    assert complaint.startswith((f"{file.name}:", "[source.shop]"))


FLOW = f'{DATABASE}[ingest.cheap]\nformat = "roskva-changes"\n'


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (FLOW, "there is: shop"),
        (f'{FLOW}path = "shops"\n', "no [source.shops]"),
        (f'{FLOW}path = "shop"\napp = "\'other\'"\n', "to the app shop only"),
        (f'{FLOW}path = "shop"\nversion = "row.revision"\n', "leave version out"),
        (f'{FLOW}path = "shop"\n[ingest.cheap.options]\nheader = true\n', "no option header"),
        (f'{FLOW}path = "shop"\nkey = "env:KEY"\n', "needs no key"),
        (f'{FLOW}path = "shop"\ntable = "orders"\n', "not among the tables"),
        ('[ingest.files]\npath = "/tmp"\ntable = "products"\n', "table is for"),
    ],
)
def test_what_is_wrong_with_a_flow_of_a_source_is_said_with_its_place(
    file: Path, text: str, what: str
) -> None:
    (complaint,) = complaints(file, text)
    assert what in complaint
    assert complaint.startswith(f"{file.name}:")


def test_a_flow_of_a_source_names_it_and_a_table(file: Path) -> None:
    given = f"""{FLOW}path = "shop"\ntable = "products"\napp = "'shop'"\n"""
    assert loaded(file, given).ingest["cheap"].table == "products"


def test_a_database_publishes_to_the_app_of_its_name(file: Path) -> None:
    (found,) = loaded(file, DATABASE).source.items()
    assert found[1].app_of(found[0]) == "shop"


def test_the_file_that_init_writes_says_what_holds_anyway(file: Path) -> None:
    assert loaded(file, template()) == Config()
    uncommented = re.sub(r"^# (\w+ = \S.*|\[.*\])$", r"\1", template(), flags=re.MULTILINE)
    example = {"thermostats": AppConfig(versions="assigned")}
    found = loaded(file, uncommented)
    assert found == Config(apps=example, ingest=found.ingest, source=found.source)
    assert found.source["shop"].tables == ("products",)
    assert found.ingest["products"].name == "concat('product/', id)"
    assert uncommented.count("\n# ") < template().count("\n# ") - 10
