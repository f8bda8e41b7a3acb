"""CSV, Parquet and Arrow: rows as they are, a bad one costs itself."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dynotune.data.read.arrow_tables import NULL_KEYS
from dynotune.data.read.readers import read_records
from dynotune.data.rows import BadRow, Record
from dynotune.data.sources.locate import open_object
from dynotune.errors import DataError


def read(path: Path, content: bytes) -> list[Record | BadRow]:
    path.write_bytes(content)
    return list(read_records(path))


def test_csv_values_are_strings_and_lines_are_where_rows_begin(tmp_path: Path) -> None:
    rows = read(tmp_path / "a.csv", b'prompt,completion\n"two\nlines","say ""yes"""\n42,\n')
    assert [(r.place.line, r.values) for r in rows if isinstance(r, Record)] == [
        (2, {"prompt": "two\nlines", "completion": 'say "yes"'}),
        (4, {"prompt": "42", "completion": ""}),
    ]


def test_csv_faults_cost_their_row(tmp_path: Path) -> None:
    rows = read(tmp_path / "a.csv", b'a,b\n1,2\n1,2,3\n"x"y,2\ncaf\xe9,2\n3,4\n"open,5\n')
    assert [(row.place.line, row.reason if isinstance(row, BadRow) else "ok") for row in rows] == [
        (2, "ok"),
        (3, "wrong-number-of-cells"),
        (4, "invalid-csv"),
        (5, "invalid-utf8"),
        (6, "ok"),
        (7, "invalid-csv"),
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "empty-file"), (b"a,b\n", "no-rows"), (b"a,a\n1,2\n", "duplicate-key"), (b"\xff\xfea\0", "wrong-encoding")],
)
def test_csv_files_without_rows_are_faults(tmp_path: Path, content: bytes, reason: str) -> None:
    (row,) = read(tmp_path / "a.csv", content)
    assert isinstance(row, BadRow)
    assert (row.place.line, row.reason) == (None, reason)


def test_csv_takes_bom_gzip_tabs_and_long_cells(tmp_path: Path) -> None:
    (bom,) = read(tmp_path / "a.csv", b"\xef\xbb\xbfa\n1\n")
    assert isinstance(bom, Record)
    assert (bom.values, bom.notices) == ({"a": "1"}, ["bom-at-start"])
    (packed,) = read(tmp_path / "a.csv.gz", gzip.compress(b"a\n" + b"x" * 300_000))
    assert isinstance(packed, Record)
    assert len(packed.values["a"]) == 300_000
    (tabs,) = read(tmp_path / "a.tsv", b"a\tb\n1,5\t2\n")
    assert isinstance(tabs, Record)
    assert tabs.values == {"a": "1,5", "b": "2"}


MESSAGES = [
    {
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        ]
    },
    {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]},
]


def arrow_file(path: Path, table: pa.Table, form: str) -> None:
    if form == "parquet":
        pq.write_table(table, path)
        return
    writer = pa.ipc.new_stream if form == "stream" else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, writer(sink, table.schema) as out:
        out.write_table(table)


@pytest.mark.parametrize(("form", "name"), [("parquet", "a.parquet"), ("stream", "a.arrow"), ("file", "b.arrow")])
def test_tables_give_back_the_rows_without_arrows_nulls(tmp_path: Path, form: str, name: str) -> None:
    """Arrow gives every message a `tool_calls: null`; a template must not see it. `content: null` stays."""
    arrow_file(tmp_path / name, pa.Table.from_pylist(MESSAGES), form)
    rows = list(read_records(tmp_path / name))
    assert [row.values for row in rows if isinstance(row, Record)] == MESSAGES
    assert [(row.place.line, row.notices) for row in rows if isinstance(row, Record)] == [
        (1, [NULL_KEYS]),
        (2, [NULL_KEYS]),
    ]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_damaged_and_empty_tables_are_faults(tmp_path: Path, name: str) -> None:
    (damaged,) = read(tmp_path / name, b"PAR1 this is none")
    assert isinstance(damaged, BadRow)
    assert damaged.reason.startswith("unreadable-")
    form = "parquet" if name == "a.parquet" else "stream"
    arrow_file(tmp_path / name, pa.table({"a": pa.array([], pa.string())}), form)
    (empty,) = read_records(tmp_path / name)
    assert isinstance(empty, BadRow)
    assert empty.reason == "no-rows"


def test_an_unknown_type_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Known types: \.jsonl.*\.parquet"):
        list(read_records(tmp_path / "a.docx"))


def not_utf8(*values: bytes) -> pa.Array:
    """A string column as a careless writer leaves it: Arrow does not check the bytes."""
    return pa.array(values, pa.binary()).cast(pa.binary()).view(pa.string())


def test_one_string_that_is_not_utf8_costs_its_row(tmp_path: Path) -> None:
    table = pa.table({"text": not_utf8(b"a", b"caf\xe9 \xff", b"c")})
    pq.write_table(table, tmp_path / "a.parquet")
    rows = list(read_records(tmp_path / "a.parquet"))
    assert [row.place.line for row in rows] == [1, 2, 3]
    assert [row.values["text"] for row in rows if isinstance(row, Record)] == ["a", "c"]
    (bad,) = (row for row in rows if isinstance(row, BadRow))
    assert (bad.place.line, bad.reason) == (2, "invalid-utf8")
    assert "'text'" in bad.detail


def test_the_same_holds_for_a_dataset_object() -> None:
    from datasets import Dataset

    table = pa.table({"text": not_utf8(b"a", b"\xff", b"c")})
    rows = list(open_object(Dataset(table), "train_dataset"))
    assert [getattr(row, "reason", "ok") for row in rows] == ["ok", "invalid-utf8", "ok"]
    assert [row.place.line for row in rows] == [1, 2, 3]


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.duration("s"), pa.timestamp("s", "No/Such_Zone")])
def test_a_time_that_python_cannot_express_keeps_its_row(tmp_path: Path, kind: pa.DataType) -> None:
    table = pa.table({"text": ["a", "b"], "made": pa.array([2**62, 2**62], pa.int64()).cast(kind, safe=False)})
    if kind == pa.timestamp("us"):
        pq.write_table(table, tmp_path / "a.parquet")
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    for path in tmp_path.iterdir():
        rows = list(read_records(path))
        assert [row.values["text"] for row in rows if isinstance(row, Record)] == ["a", "b"]
        assert all("time-out-of-range" in row.notices for row in rows if isinstance(row, Record))


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    """One of them would be dropped in silence; CSV refuses it too."""
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    pq.write_table(table, tmp_path / "a.parquet")
    (bad,) = read_records(tmp_path / "a.parquet")
    assert isinstance(bad, BadRow)
    assert (bad.place.line, bad.reason) == (None, "duplicate-key")
    assert "'text'" in bad.detail
