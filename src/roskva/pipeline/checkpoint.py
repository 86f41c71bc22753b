"""The checkpoint of a streaming query: one run at a time, and mended after a power cut.

    DIR/lock            held by the run, and by its JVM: see below
    DIR/spark/          what Spark keeps
      metadata
      offsets/N         written before micro-batch N
      commits/N         written after it
      sources/0/N       what a source keeps, where it does

Spark replaces these files without syncing them. A killed process leaves them sound, and perhaps the
one that it was writing beside them, which the next run removes. A power cut may leave the newest of
them cut off, and Spark then refuses to start. All our sinks take an update twice without harm, so
the newest entry may be removed: its micro-batch is done again. Older ones are never touched.

Two runs on one checkpoint would overwrite each other's entries. The lock is on an open file that is
handed to the JVM, which goes on writing for a moment after its Python driver was killed.
"""

import json
import logging
import os
import struct
import uuid
import zlib
from pathlib import Path
from typing import Final

from roskva.disk import lock_file
from roskva.errors import Unavailable

_LOG: Final = logging.getLogger(__name__)
_CRC: Final = struct.Struct(">4sI")


class CheckpointInUse(Unavailable):
    code = "checkpoint_in_use"


class Checkpoint:
    """Used as a context; `lock` is inherited by the JVM."""

    def __init__(self, directory: Path, patience_s: float = 0.0) -> None:
        """`patience_s`: how long to wait for the JVM of a run that was killed."""
        self.directory = directory
        self._patience_s = patience_s
        self.spark = directory / "spark"
        self.lock = -1

    def __enter__(self) -> "Checkpoint":
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            self.lock = lock_file(self.directory / "lock", self._patience_s)
        except BlockingIOError as held:
            raise CheckpointInUse(
                f"{self.directory} is in use by another run (process {held.strerror}): stop that "
                "one first; one that was just killed is gone in a few seconds"
            ) from None
        self.repaired = repair(self.spark)
        for sentence in self.repaired:
            _LOG.warning("%s", sentence)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.lock)


def repair(spark: Path) -> list[str]:
    """Remove the newest entry of each log if it was cut off; what was done, in sentences."""
    done = []
    metadata = spark / "metadata"
    if metadata.exists() and not _is_sound(metadata, headed=False):
        _remove(metadata)
        metadata.write_text(json.dumps({"id": str(uuid.uuid4())}))  # Spark would refuse without
        done.append(f"{metadata} was cut off, as after a power cut: it is made anew")
    for log in _logs(spark):
        for half_written in log.glob(".*.tmp*"):
            half_written.unlink()
        newest = max(_entries(log), default=None)
        while newest is not None and not _is_sound(log / str(newest), headed=True):
            _remove(log / str(newest))
            done.append(
                f"{log / str(newest)} was cut off, as after a power cut: it is removed, and its "
                "micro-batch is done again"
            )
            newest = max(_entries(log), default=None)
    return done + _left_over(spark)


def _left_over(spark: Path) -> list[str]:
    """A commit, or a plan of sources, cannot be newer than the offsets it is about."""
    done = []
    offsets = max(_entries(spark / "offsets"), default=-1)
    for number in _entries(spark / "commits"):
        if number > offsets:
            _remove(spark / "commits" / str(number))
            done.append(f"{spark}/commits/{number} has no offsets any more: it is removed")
    return done


def _logs(spark: Path) -> list[Path]:
    return [spark / "offsets", spark / "commits", *sorted((spark / "sources").glob("*"))]


def _entries(log: Path) -> list[int]:
    if not log.is_dir():
        return []
    return [int(entry.name) for entry in log.iterdir() if entry.name.isdecimal()]


def _is_sound(file: Path, *, headed: bool) -> bool:
    """`headed`: a first line says the format. The lines are JSON; a `-` stands for nothing."""
    content = file.read_bytes()
    if not _crc_agrees(file, content):
        return False
    try:
        head, *lines = content.decode().splitlines()
        if headed and not head.startswith("v"):
            return False
        for line in lines if headed else [head, *lines]:
            if line not in ("-", ""):
                json.loads(line)
    except ValueError:
        return False
    return bool(lines) or not headed


def _crc_agrees(file: Path, content: bytes) -> bool:
    """With the sums that Hadoop keeps beside every local file, if they are there."""
    try:
        sums = _crc_of(file).read_bytes()
    except FileNotFoundError:
        return True
    if len(sums) < _CRC.size:
        return False
    magic, chunk = _CRC.unpack_from(sums)
    if magic != b"crc\0" or not chunk:
        return False
    expected = b"".join(
        zlib.crc32(content[i : i + chunk]).to_bytes(4) for i in range(0, len(content), chunk)
    )
    return sums[_CRC.size :] == expected


def _crc_of(file: Path) -> Path:
    return file.with_name(f".{file.name}.crc")


def _remove(file: Path) -> None:
    file.unlink()
    _crc_of(file).unlink(missing_ok=True)
