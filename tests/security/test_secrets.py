"""Nobody else on the machine reads what is secret: keys, and what is published."""

import logging
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from roskva.config import AdminConfig, AppConfig, Config, IngestConfig, ProbeConfig, exposed
from roskva.links.own_keys import TOKEN_KEY
from roskva.server.access.keys import token_keys
from roskva.server.backup import back_up, restore
from roskva.server.directory import DataDirectory

SECRET = "0123456789abcdef" * 2


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that everybody may enter, as /etc; those of the tests nobody may."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


def test_backups_and_what_is_restored_hold_no_file_that_others_can_read(tmp_path: Path) -> None:
    data = DataDirectory.open_or_create(tmp_path / "data", 1)
    with data.own(0) as shard:
        shard.feed_path.mkdir()
        shard.store_path.mkdir()
        from roskva.store.rocksdb import RocksStore

        RocksStore(shard.store_path).close()
    token_keys(data.path)
    (data.path / TOKEN_KEY).chmod(0o644)
    back_up(data, tmp_path / "backup", 1)
    for path in (tmp_path / "backup").rglob("*"):  # as it may arrive from elsewhere
        if path.is_file():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
            path.chmod(0o644)
    restore(tmp_path / "backup", tmp_path / "restored")
    files = [path for path in (tmp_path / "restored").rglob("*") if path.is_file()]
    assert tmp_path / "restored" / TOKEN_KEY in files
    assert [path for path in files if path.stat().st_mode & 0o077] == []


def test_a_token_key_that_others_can_read_is_closed_to_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = token_keys(tmp_path)
    (tmp_path / TOKEN_KEY).chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert token_keys(tmp_path) == before
    assert "is mode 600 now" in caplog.text
    assert stat.S_IMODE((tmp_path / TOKEN_KEY).stat().st_mode) == 0o600


def test_a_named_key_file_that_everybody_can_read_is_refused(public: Path) -> None:
    file = public / "secret.key"
    file.write_text(SECRET)
    named = f"file:{file}"
    for config in (
        Config(admin=AdminConfig(key=named)),
        Config(probe=ProbeConfig(key=named)),
        Config(apps={"contacts": AppConfig(publish_keys=[named])}),
        Config(ingest={"files": IngestConfig(key=named)}),
    ):
        file.chmod(0o644)
        [sentence] = exposed(config)
        assert str(file) in sentence
        assert "chmod 600" in sentence
        assert SECRET not in sentence
        file.chmod(0o640)
        assert exposed(config) == []
        file.chmod(0o644)
        public.chmod(0o700)  # nobody else gets that far
        assert exposed(config) == []
        public.chmod(0o755)
