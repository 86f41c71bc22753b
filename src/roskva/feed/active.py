"""The segment that is being written."""

from contextlib import suppress

from roskva.disk import Disk, File
from roskva.feed.segment import (
    END_AT,
    FRAMES_AT,
    End,
    Header,
    encode_end,
    encode_header,
    name_of,
)


class ActiveSegment:
    """Knows how far it has been written. After an error from `append` it must not be used again:
    nobody can say which bytes are on the disk."""

    __slots__ = ("_file", "first", "last", "position")

    def __init__(self, file: File, first: int) -> None:
        self.first = first
        self.last = first - 1
        self.position = FRAMES_AT
        self._file = file

    def append(self, frames: bytes, last: int) -> None:
        """Neither durable yet nor visible."""
        self._file.write_at(frames, self.position)
        self.position += len(frames)
        self.last = last

    def sync(self) -> None:
        self._file.sync()

    def publish(self) -> None:
        """Let readers see what is durable."""
        self._file.write_at(encode_end(End(self.last, self.position)), END_AT)

    def finish(self) -> None:
        """Say that no further offset was used, so that the next writer can go on without a void."""
        self._file.write_at(encode_end(End(self.last, self.position, closed=True)), END_AT)
        self._file.sync()

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()


def start_segment(disk: Disk, directory: str, header: Header) -> ActiveSegment:
    """A new segment appears with a whole header or not at all."""
    path = f"{directory}/{name_of(header.first, header.writer)}"
    file = disk.create(path + ".tmp")
    try:
        end = End(header.first - 1, FRAMES_AT)
        file.write_at(encode_header(header) + encode_end(end), 0)
        file.sync()
        disk.rename(path + ".tmp", path)
        disk.sync_directory(directory)
    except BaseException:
        file.close()
        with suppress(OSError):
            disk.remove(path + ".tmp")
        raise
    return ActiveSegment(file, header.first)
