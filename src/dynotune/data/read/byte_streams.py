"""Text files as bytes, whatever they are wrapped in, without believing their names."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Self

from dynotune.data.rows import BadRow, Place
from dynotune.printable import beginning

CHUNK = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
LARGEST_ROW = 64 << 20
"""Bytes. A row beyond this is bad (`row-too-large`) and never held in memory as a whole: tokenising takes a hundred times
its size, and such a row is usually a file without line breaks, or a compression bomb."""

NOT_READ_ON = "not-read-on"
"""The reason of a file that was left before its end, as `at_most` asks for."""

_AT_MOST: ContextVar[int | None] = ContextVar("at_most", default=None)

_HEAD = 1024
UTF8_BOM = b"\xef\xbb\xbf"

# The longer marks first: UTF-32's little-endian mark begins with UTF-16's.
_OTHER_ENCODINGS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


class StreamFaultError(Exception):
    """The file cannot be read, or not to its end. `reason` and `detail` are those of a `BadRow` for the file."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


@contextmanager
def at_most(size: int | None) -> Iterator[None]:
    """Inside, each text file is left after so many bytes (decompressed): its rows end with a bad one for `NOT_READ_ON`."""
    before = _AT_MOST.set(size)
    try:
        yield
    finally:
        _AT_MOST.reset(before)


@dataclass(frozen=True)
class TooLarge:
    """In place of a row that is too large: its beginning, and how many bytes it has."""

    head: bytes
    size: int

    def bad_row(self, place: Place) -> BadRow:
        detail = f"the row has at least {self.size:,} bytes, and the most that is read is {LARGEST_ROW:,}; divide it"
        return BadRow(place, "row-too-large", detail, beginning(self.head))


@dataclass
class ByteStream:
    """The decompressed bytes of a file after its byte order mark.

    `notices` holds what its wrapping had of note. Reading raises `StreamFaultError`.
    """

    raw: BinaryIO
    notices: list[str] = field(default_factory=list)
    head: bytes = b""
    """Bytes read ahead to recognise the content; `chunks` hands them out first."""
    skipped: int = 0
    """Length of the byte order mark, so that offsets in messages are the file's."""
    unfinished: bytes = b""
    """After a `StreamFaultError` in `lines`: what stood before the fault without a line end."""
    _taken: int = 0
    """Bytes that were read so far."""

    _fault: StreamFaultError | None = None
    """Met while reading ahead; raised once the bytes before it are handed out."""

    @classmethod
    def open(cls, path: Path) -> Self:
        named_gz = path.suffix == ".gz"
        file = path.open("rb")
        is_gz = file.read(2) == GZIP_MAGIC
        file.seek(0)
        # GzipFile is a BufferedIOBase with all that is used here, though not declared a BinaryIO.
        stream = cls(gzip.GzipFile(fileobj=file) if is_gz else file)  # type: ignore[arg-type]
        if named_gz and not is_gz:
            stream.notices.append("plain-text-under-gz-name")
        if is_gz and not named_gz:
            stream.notices.append("gzip-under-plain-name")
        return stream

    def recognise(self) -> None:
        """Read ahead, take off a UTF-8 byte order mark, and refuse other encodings."""
        try:
            while len(self.head) < CHUNK and (chunk := self._read()):
                self.head += chunk
        except StreamFaultError as error:
            if not self.head:
                raise
            self._fault = error
        for mark, name in _OTHER_ENCODINGS.items():
            if self.head.startswith(mark):
                raise StreamFaultError("wrong-encoding", f"the file is {name}, not UTF-8 (`iconv -f {name} -t UTF-8`)")
        if self.head[:2] in (b"{\0", b"[\0", b"\0{", b"\0["):
            raise StreamFaultError(
                "wrong-encoding", "the file looks like UTF-16, not UTF-8 (`iconv -f UTF-16 -t UTF-8`)"
            )
        if self.head.startswith(UTF8_BOM):
            self.head, self.skipped = self.head[3:], 3
            self.notices.append("bom-at-start")

    def chunks(self) -> Iterator[bytes]:
        """All bytes, a piece at a time."""
        if self.head:
            yield self.head
        if self._fault:
            raise self._fault
        while chunk := self._read():
            yield chunk

    def lines(self) -> Iterator[bytes | TooLarge]:
        """Lines with their `\\n`. Nothing else ends a line: Unicode's line separators may stand inside a row."""
        line = _Line()
        try:
            for chunk in self.chunks():
                first, *rest = chunk.split(b"\n")
                line.add(first)
                for following in rest:
                    line.add(b"\n")
                    yield line.take()
                    line.add(following)
        except StreamFaultError:
            self.unfinished = b"".join(line.pieces)
            raise
        if line.size:
            yield line.take()

    def close(self) -> None:
        self.raw.close()

    def _read(self) -> bytes:
        most = _AT_MOST.get()
        if most is not None and self._taken >= most:
            raise StreamFaultError(NOT_READ_ON, f"only its first {self._taken:,} bytes were read")
        try:
            chunk: bytes = self.raw.read1(CHUNK)  # type: ignore[attr-defined]
            self._taken += len(chunk)
            return chunk
        except EOFError as error:
            detail = "the compressed file ends before its end mark: it was cut short, and rows are missing"
            raise StreamFaultError("truncated-gzip", detail) from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise StreamFaultError("corrupt-gzip", f"the compressed data is damaged: {error}") from error


@dataclass
class _Line:
    """A line that is being read; of one that grows too large only the beginning is kept."""

    pieces: list[bytes] = field(default_factory=list)
    size: int = 0

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size <= LARGEST_ROW:
            self.pieces.append(piece)
        elif len(self.pieces) != 1 or len(self.pieces[0]) > _HEAD:
            self.pieces = [b"".join(self.pieces)[:_HEAD] or piece[:_HEAD]]

    def take(self) -> bytes | TooLarge:
        line: bytes | TooLarge = b"".join(self.pieces)
        if self.size > LARGEST_ROW:
            line = TooLarge(self.pieces[0], self.size)
        self.pieces, self.size = [], 0
        return line
