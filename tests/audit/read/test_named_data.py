"""Promise: data that a project's jobs name in it is looked at without being asked for, and nothing else is."""

import gzip
import json
import os
from pathlib import Path

import pytest

from dynotune.audit.read import named_data
from dynotune.audit.run import Request, Result, audit
from dynotune.data.read.byte_streams import ByteStream
from dynotune.errors import DataError

PACKED = "model_name_or_path: a/b\nmax_length: 2048\npacking: true\nattn_implementation: flash_attention_2\n"
ROWS = "".join(json.dumps({"prompt": f"What is {i}?", "completion": "A number."}) + "\n" for i in range(2_000))


def of(project: Path, **more: object) -> Result:
    return audit(Request(project=project, **more))  # type: ignore[arg-type]


def codes(found: Result) -> set[str]:
    return {one.code for one in found.findings}


def test_updates_that_collapse_are_found_without_naming_the_data(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    (tmp_path / "sft.yaml").write_text(f"{PACKED}dataset_name: rows.jsonl\n")
    found = of(tmp_path)
    assert "PAD002" in codes(found)
    (data,) = found.project.data
    assert data.rows == 2_000
    (tmp_path / "sft.yaml").write_text(f"{PACKED}dataset_name: elsewhere.jsonl\n")
    assert "PAD002" not in codes(of(tmp_path)), "the control: nobody names the file"


def test_a_part_is_read_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_data, "ROWS", 100)
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(ROWS.encode()))
    (tmp_path / "sft.yaml").write_text(f"{PACKED}dataset_name: rows.jsonl.gz\n")
    (data,) = of(tmp_path).project.data
    assert data.sampled
    assert "only the first 100 rows" in " ".join(data.said)


def test_rows_that_cannot_be_used_are_said_and_end_nothing(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"neither": 1}\n')
    (tmp_path / "sft.yaml").write_text(f"{PACKED}dataset_name: rows.jsonl\n")
    found = of(tmp_path)
    assert [one.place.file for one in found.project.not_read] == ["rows.jsonl"]
    assert not found.project.data
    with pytest.raises(DataError):
        of(tmp_path, data=[tmp_path / "rows.jsonl"])


def test_data_that_is_given_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    (tmp_path / "sft.yaml").write_text(f"{PACKED}dataset_name: rows.jsonl\n")
    assert len(of(tmp_path, data=[tmp_path / "rows.jsonl"]).project.data) == 1


@pytest.mark.parametrize("mapped", [True, False])
def test_rows_that_a_script_makes_are_not_the_files(tmp_path: Path, mapped: bool) -> None:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    (tmp_path / "train.py").write_text(
        "from datasets import load_dataset\nfrom trl import SFTConfig, SFTTrainer\n"
        "rows = load_dataset('json', data_files='rows.jsonl', split='train')\n"
        f"{'rows = rows.map(shorten)' if mapped else ''}\n"
        "SFTTrainer('a/b', args=SFTConfig(output_dir='o'), train_dataset=rows).train()\n"
    )
    assert len(of(tmp_path).project.data) == (not mapped)


def test_no_link_is_followed_out_of_the_project_and_no_pipe_is_opened(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "rows.jsonl"
    project.mkdir()
    outside.write_text(ROWS)
    (project / "linked.jsonl").symlink_to(outside)
    os.mkfifo(project / "pipe.jsonl")
    for named in ("linked.jsonl", "pipe.jsonl", "../rows.jsonl", str(outside), "a\\0b", "x" * 5_000):
        (project / "sft.yaml").write_text(f'{PACKED}dataset_name: "{named}"\n')
        assert not of(project).project.data


@pytest.mark.parametrize("kind", ["one line", "blank lines", "long rows"])
def test_a_file_that_is_made_to_take_long_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """40 MB in a small file. The control: as data that is given it is read to its end."""
    row = json.dumps({"text": "word " * 500_000}).encode() + b"\n"
    text = {"one line": b"0" * (40 << 20), "blank lines": b"\n" * (2 << 20) + b" " * (38 << 20), "long rows": row * 16}[
        kind
    ]
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(text, compresslevel=1))
    (tmp_path / "sft.yaml").write_text(f"{PACKED}dataset_name: rows.jsonl.gz\n")
    read, taken = ByteStream._read, [0]

    def counted(self: ByteStream) -> bytes:
        chunk = read(self)
        taken[0] += len(chunk)
        return chunk

    monkeypatch.setattr(ByteStream, "_read", counted)
    monkeypatch.setattr(named_data, "SIZE", 1 << 20)
    of(tmp_path)
    assert taken[0] <= 4 << 20
    if kind == "one line":
        with pytest.raises(DataError):
            of(tmp_path, data=[tmp_path / "rows.jsonl.gz"])
        assert taken[0] >= 40 << 20


@pytest.mark.parametrize("key", ['dataset_train_split: "train[:100]"', "dataset_train_split: train"])
def test_a_part_of_a_split_is_not_the_file(tmp_path: Path, key: str) -> None:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    (tmp_path / "sft.yaml").write_text(f"{PACKED}dataset_name: rows.jsonl\n{key}\n")
    assert len(of(tmp_path).project.data) == ("[" not in key)
