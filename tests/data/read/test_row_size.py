"""A row beyond `LARGEST_ROW` is bad, costs no memory, and its neighbours are read."""

import gzip
import json
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dynotune.data.read import byte_streams
from dynotune.data.read.readers import read_records
from dynotune.data.rows import BadRow, Record

LIMIT = 5000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_streams, "LARGEST_ROW", LIMIT)
    monkeypatch.setattr(byte_streams, "CHUNK", 700)


def row(size: int) -> str:
    return json.dumps({"text": "x" * (size - 12)})


def summary(path: Path, content: bytes) -> list[tuple[int | None, str]]:
    path.write_bytes(content)
    return [(row.place.line, getattr(row, "reason", "ok")) for row in read_records(path)]


@pytest.mark.parametrize("size", [LIMIT + 1, LIMIT + 699, 3 * LIMIT, 40 * LIMIT])
def test_json_lines_and_arrays(tmp_path: Path, size: int) -> None:
    assert len(row(size)) == size
    rows = [row(20), row(size), row(LIMIT - 1), row(size), row(30)]
    expected = [(1, "ok"), (2, "row-too-large"), (3, "ok"), (4, "row-too-large"), (5, "ok")]
    assert summary(tmp_path / "a.jsonl", "\n".join(rows).encode()) == expected
    assert summary(tmp_path / "a.jsonl.gz", gzip.compress("\n".join(rows).encode())) == expected
    array = "[\n" + ",\n".join(rows) + "]"
    assert summary(tmp_path / "a.json", array.encode()) == [(line + 1, what) for line, what in expected]


def test_lines_are_counted_inside_a_large_element(tmp_path: Path) -> None:
    large = json.dumps({"a": ["x"] * LIMIT}, indent=0)
    content = f"[{row(20)},\n{large},\n{row(30)}]"
    last = 1 + content.count("\n")
    assert summary(tmp_path / "a.json", content.encode()) == [(1, "ok"), (2, "row-too-large"), (last, "ok")]


def test_the_message_names_size_limit_and_beginning(tmp_path: Path) -> None:
    for name, content in (("a.jsonl", row(9000)), ("a.json", f"[{row(9000)}]")):
        (tmp_path / name).write_text(content)
        (bad,) = read_records(tmp_path / name)
        assert isinstance(bad, BadRow)
        assert "at least 9,000 bytes" in bad.detail
        assert "5,000" in bad.detail
        assert bad.beginning.startswith('{"text": "xxx')


def test_csv_stops_there_because_the_next_row_cannot_be_told(tmp_path: Path) -> None:
    long = "text\na\n" + "x" * (2 * LIMIT) + "\nb\n"
    assert summary(tmp_path / "a.csv", long.encode()) == [(2, "ok"), (3, "row-too-large"), (None, "row-too-large")]
    unclosed = 'text\na\n"' + "plausible row\n" * LIMIT
    assert summary(tmp_path / "a.csv", unclosed.encode()) == [(2, "ok"), (3, "row-too-large"), (None, "row-too-large")]
    many = "text\n" + ("x" * 1000 + "\n") * 20
    assert {what for _, what in summary(tmp_path / "a.csv", many.encode())} == {"ok"}


def test_a_table(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a", "x" * (2 * LIMIT), "c"]}), tmp_path / "a.parquet")
    rows = list(read_records(tmp_path / "a.parquet"))
    assert [getattr(row, "reason", "ok") for row in rows] == ["ok", "row-too-large", "ok"]
    assert [row.place.line for row in rows] == [1, 2, 3]
    assert [row.values["text"] for row in rows if isinstance(row, Record)] == ["a", "c"]


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.json.gz", "b.json.gz", "a.csv.gz"])
def test_a_compression_bomb_is_not_held_in_memory(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_streams, "CHUNK", 1 << 16)
    with gzip.open(tmp_path / name, "wb") as file:
        file.write({"a.json.gz": b'[{"text": "', "b.json.gz": b"{\n"}.get(name, b"text\n"))
        for _ in range(40):
            file.write(b"x" * (1 << 20))
    tracemalloc.start()
    rows = list(read_records(tmp_path / name))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert any(isinstance(row, BadRow) for row in rows)
    assert peak < (4 << 20 if name != "b.json.gz" else 40 << 20), peak
