"""JSON and JSON Lines: every line becomes a record or a bad row, whatever the file holds."""

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynotune.data.read import byte_streams
from dynotune.data.read.readers import read_records
from dynotune.data.rows import BadRow, Record

ROW = {"messages": [{"role": "user", "content": 'a [b] {c} " \\ , é\u2028'}, {"role": "assistant", "content": "d"}]}
LINE = json.dumps(ROW, ensure_ascii=False).encode()


def read(path: Path, content: bytes) -> list[Record | BadRow]:
    path.write_bytes(content)
    return list(read_records(path))


def summary(rows: list[Record | BadRow]) -> list[tuple[int | None, str]]:
    return [(row.place.line, row.reason if isinstance(row, BadRow) else "ok") for row in rows]


def test_lines_are_numbered_and_blank_ones_skipped(tmp_path: Path) -> None:
    rows = read(tmp_path / "a.jsonl", b"\n" + LINE + b"\n  \t\n{\n" + LINE)
    assert summary(rows) == [(2, "ok"), (4, "truncated-json"), (5, "ok")]


def test_unicode_line_separators_do_not_end_a_row(tmp_path: Path) -> None:
    line = json.dumps({"text": "a\u2028b\u2029c\x85d"}, ensure_ascii=False).encode()
    rows = read(tmp_path / "a.jsonl", line + b"\n" + line + b"\n")
    assert [row.values["text"] for row in rows if isinstance(row, Record)] == ["a\u2028b\u2029c\x85d"] * 2


def test_crlf_and_bom_are_noticed_and_harmless(tmp_path: Path) -> None:
    rows = read(tmp_path / "a.jsonl", b"\xef\xbb\xbf" + LINE + b"\r\n\r\n" + LINE + b"\r\n")
    assert [(r.values, r.notices) for r in rows if isinstance(r, Record)] == [
        (ROW, ["crlf", "bom-at-start"]),
        (ROW, []),
    ]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_other_encodings_are_named(tmp_path: Path, encoding: str) -> None:
    (row,) = read(tmp_path / "a.jsonl", LINE.decode().encode(encoding))
    assert summary([row]) == [(None, "wrong-encoding")]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.jsonl.gz"])
def test_empty_files_are_faults(tmp_path: Path, name: str) -> None:
    assert summary(read(tmp_path / name, b"")) == [(None, "empty-file")]
    assert summary(read(tmp_path / name, b"\n \n")) == [(None, "no-rows")]


def test_gzip_is_told_by_content_and_not_by_name(tmp_path: Path) -> None:
    (plain,) = read(tmp_path / "a.jsonl.gz", LINE)
    (packed,) = read(tmp_path / "b.jsonl", gzip.compress(LINE))
    (usual,) = read(tmp_path / "c.jsonl.gz", gzip.compress(LINE))
    assert isinstance(plain, Record)
    assert isinstance(packed, Record)
    assert isinstance(usual, Record)
    assert (plain.notices, packed.notices, usual.notices) == (
        ["plain-text-under-gz-name"],
        ["gzip-under-plain-name"],
        [],
    )


def test_a_cut_gzip_gives_its_rows_and_the_fault(tmp_path: Path) -> None:
    """A file that was cut short must not pass for a complete one."""
    lines = b"".join(json.dumps({"text": f"{i * 7919 % 10007} row"}).encode() + b"\n" for i in range(5000))
    whole = gzip.compress(lines)
    rows = read(tmp_path / "a.jsonl.gz", whole[: len(whole) // 2])
    assert 500 < len(rows) < 5000
    assert summary(rows)[-1] == (None, "truncated-gzip")
    assert all(isinstance(row, Record) for row in rows[:-1])
    rows = read(tmp_path / "a.jsonl.gz", whole[:12])
    assert summary(rows) == [(None, "truncated-gzip")]


def test_damaged_gzip_is_a_fault(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(LINE * 100))
    whole[-6] ^= 0xFF  # the checksum
    assert summary(read(tmp_path / "a.jsonl.gz", bytes(whole)))[-1] == (None, "corrupt-gzip")


@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.json.gz"])
def test_an_array_is_an_array_under_any_name(tmp_path: Path, name: str, indent: int | None) -> None:
    content = json.dumps([ROW, ROW, {"text": "x"}], indent=indent).encode()
    rows = read(tmp_path / name, gzip.compress(content) if name.endswith("gz") else content)
    assert [row.values for row in rows if isinstance(row, Record)] == [ROW, ROW, {"text": "x"}]
    expected = ["array-under-jsonl-name"] if name == "a.jsonl" else []
    assert [row.notices for row in rows if isinstance(row, Record)] == [expected, [], []]


def test_a_bad_element_costs_itself_only(tmp_path: Path) -> None:
    rows = read(
        tmp_path / "a.json",
        b'[\n{"text": "a"},\n{"text": NaN},\n3,\n{"a":1,"a":2}, {"text": "\xff"},\n{"text": "b"}\n]',
    )
    assert summary(rows) == [
        (2, "ok"),
        (3, "nan-literal"),
        (4, "line-is-not-an-object"),
        (5, "duplicate-key"),
        (5, "invalid-utf8"),
        (6, "ok"),
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"[]", [(None, "no-rows")]),
        (b'[{"a":1},]', [(1, "ok"), (1, "trailing-comma")]),
        (b'[{"a":1},,{"a":2}]', [(1, "ok"), (1, "trailing-comma"), (1, "ok")]),
        (b'[{"a":1},\n{"a":', [(1, "ok"), (None, "truncated-json")]),
        (b'[{"a":1}] x', [(1, "ok"), (None, "text-after-array")]),
        (b'[{"a":1}}, {"a":2}]', [(1, "text-after-object"), (1, "ok")]),
    ],
)
def test_faults_of_arrays(tmp_path: Path, content: bytes, expected: list[tuple[int | None, str]]) -> None:
    assert summary(read(tmp_path / "a.json", content)) == expected


def test_a_file_that_is_one_object_says_what_to_do(tmp_path: Path) -> None:
    (row,) = read(tmp_path / "a.json", json.dumps({"version": 1, "data": [ROW]}, indent=1).encode())
    assert isinstance(row, BadRow)
    assert row.reason == "object-instead-of-rows"
    assert "version, data" in row.detail
    assert "jq" in row.detail


def test_lines_under_a_json_name_are_lines(tmp_path: Path) -> None:
    assert summary(read(tmp_path / "a.json", LINE + b"\n" + LINE)) == [(1, "ok"), (2, "ok")]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    rows=st.lists(st.dictionaries(st.text(max_size=6), st.text(max_size=30) | st.none(), max_size=3), max_size=8),
    chunk=st.integers(1, 40),
    indent=st.sampled_from([None, 2]),
)
def test_arrays_are_read_alike_wherever_chunks_end(
    tmp_path: Path, rows: list[dict[str, str | None]], chunk: int, indent: int | None
) -> None:
    """The scanner's state must survive every boundary: inside strings, escapes, between brackets."""
    content = json.dumps(rows, indent=indent)
    path = tmp_path / "a.json"
    path.write_text(content, encoding="utf-8")
    whole, byte_streams.CHUNK = byte_streams.CHUNK, chunk
    try:
        found = list(read_records(path))
    finally:
        byte_streams.CHUNK = whole
    if not rows:
        assert summary(found) == [(None, "no-rows")]
    elif all(isinstance(row, Record) for row in found):
        assert [row.values for row in found if isinstance(row, Record)] == rows
    else:
        assert {row.reason for row in found if isinstance(row, BadRow)} == {"lone-surrogate"}
        assert len(found) == len(rows)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    lines=st.lists(st.sampled_from([LINE, b"", b"  ", b'{"text": "a"}', b"[1]", b'{"t": "\\u00e9"}']), max_size=8),
    edits=st.lists(st.tuples(st.integers(0, 10_000), st.binary(max_size=3), st.integers(0, 4)), max_size=4),
    crlf=st.booleans(),
)
def test_no_mutation_of_a_file_loses_a_line(
    tmp_path: Path, lines: list[bytes], edits: list[tuple[int, bytes, int]], crlf: bool
) -> None:
    """Fuzz: good + bad + blank = lines, and nothing raises."""
    # A first line of text keeps the file JSON Lines; arrays and encodings have tests of their own.
    content = bytearray((b"\r\n" if crlf else b"\n").join(lines) + b"\n")
    for position, new, removed in edits:
        at = position % (len(content) + 1)
        content[at : at + removed] = new
    fixed = b'{"text": "first"}\n' + bytes(content)
    rows = read(tmp_path / "a.jsonl", fixed)
    blank = sum(not line.strip(b" \t\r") for line in fixed.split(b"\n"))
    assert len(rows) + blank == fixed.count(b"\n") + 1
    numbers = [row.place.line for row in rows]
    assert numbers == sorted(set(numbers))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.binary(max_size=200), st.sampled_from(["a.jsonl", "a.json", "a.jsonl.gz", "a.csv", "a.parquet", "a.arrow"]))
def test_no_file_raises(tmp_path: Path, content: bytes, name: str) -> None:
    rows = read(tmp_path / name, content)
    assert rows, "a file without a word about it"


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, name: str) -> None:
    """60 MB of rows pass through less than 10 MB."""
    path = tmp_path / name
    row = json.dumps({"text": "x" * 30_000})
    with path.open("w") as file:
        file.write("[" if name == "a.json" else "")
        file.write((",\n" if name == "a.json" else "\n").join([row] * 2000))
        file.write("]" if name == "a.json" else "\n")
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_records(path)) == 2000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10e6
