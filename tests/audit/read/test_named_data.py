"""Promise: data that a project's jobs name in it is looked at without being asked for, and nothing else is."""

import gzip
import json
import os
import tracemalloc
from pathlib import Path

import pytest

from dynotune.audit.read import named_data
from dynotune.audit.run import Request, Result, audit
from dynotune.audit.show import words
from dynotune.audit.show.as_json import as_json
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


def of_config(folder: Path, text: str, name: str = "sft.yaml", **more: object) -> Result:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return audit(Request(files=[folder / name], **more))  # type: ignore[arg-type]


AXOLOTL = (
    "base_model: a/b\nsequence_len: 2048\nsample_packing: true\nmicro_batch_size: 1\ngradient_accumulation_steps: 1\n"
    "learning_rate: 1.0e-5\ntype: chat\n"
)
MIXED = "datasets:\n  - path: json\n    data_files: {}\n"


@pytest.mark.parametrize(
    "names",
    [
        f"{PACKED}dataset_name: data/rows.jsonl\n",
        f"{PACKED}dataset_name: ../data/rows.jsonl\n",
        f"{PACKED}{MIXED.format('data/rows.jsonl')}",
        f"{PACKED}{MIXED.format('[data/rows.jsonl]')}",
        f"{AXOLOTL}datasets:\n  - path: data/rows.jsonl\n    ds_type: json\n",
        f"{AXOLOTL}{MIXED.format('data/rows.jsonl')}",
    ],
)
def test_data_that_a_named_configuration_names_is_looked_at(
    names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From where the command runs, and from the configuration's folder; what the audit finds is what `--data` finds."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/rows.jsonl").write_text(ROWS)
    found = of_config(Path(), names, "configs/sft.yaml")
    given = of_config(Path(), names, "configs/sft.yaml", data=[Path("data/rows.jsonl")])
    assert [one.rows for one in found.project.data] == [2_000]
    assert [(one.code, one.message) for one in found.findings] == [(one.code, one.message) for one in given.findings]
    without = of_config(Path(), names, "configs/sft.yaml", data=[Path("data/rows.jsonl")], ignore=("PAD002",))
    assert len(without.findings) == len(found.findings) - ("PAD002" in codes(found))
    if "packing: true" in names and "base_model" not in names:
        assert "PAD002" in codes(found)
        silent = names.replace("packing: true", "packing: true  # dynotune: ignore[PAD002] meant so")
        assert "PAD002" not in codes(of_config(Path(), silent, "configs/sft.yaml"))


def test_the_data_set_of_dataset_info_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/rows.jsonl").write_text(ROWS)
    (tmp_path / "data/dataset_info.json").write_text('{"mine": {"file_name": "rows.jsonl"}, "odd": 1}')
    text = (
        "model_name_or_path: a/b\nstage: sft\ndo_train: true\nfinetuning_type: lora\ntemplate: qwen\noutput_dir: o\n"
        "cutoff_len: 128\ndataset: {}\n"
    )
    assert [one.rows for one in of_config(tmp_path, text.format("mine")).project.data] == [2_000]
    for name in ("odd", "other"):
        assert not of_config(tmp_path, text.format(name)).project.data
    (tmp_path / "data/dataset_info.json").write_text("[1")
    assert not of_config(tmp_path, text.format("mine")).project.data


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nix.jsonl", "no such file here"),
        ("./nix", "no such file here"),
        ("folder", "it is a folder"),
        ("rows.parquet", "may take long"),
        ("trl-lib/Capybara", ""),
        ("https://example.org/rows.jsonl", ""),
        ("hf://datasets/a/rows.jsonl", ""),
    ],
)
def test_what_of_the_data_is_not_looked_at_is_said(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    found = of_config(tmp_path, f"{PACKED}dataset_name: {name}\n")
    assert not found.project.data
    why = [one.why for one in found.project.not_read]
    assert ([said in one and "sft.yaml names it" in one for one in why] == [True]) if said else not why


def test_several_data_sets_and_parts_of_one_are_said_and_not_counted(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    two = "datasets:\n  - path: rows.jsonl\n  - path: more.jsonl\n"
    for text in (AXOLOTL + two, f"{PACKED}dataset_name: rows.jsonl\ndataset_train_split: train[:10]\n"):
        found = of_config(tmp_path, text)
        assert not found.project.data
        assert ["trains on a part of it" in one.why for one in found.project.not_read] == [True]


def test_how_much_of_the_data_was_looked_at_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_data, "ROWS", 500)
    (tmp_path / "rows.jsonl").write_text(ROWS)
    found = of_config(tmp_path, f"{PACKED}dataset_name: rows.jsonl\n")
    (line,) = words.data(found)
    assert "500 rows; only the first 500 rows were read (at most 500); lengths are estimated" in line
    assert "that is about 25 % of the file" in line or "that is about 24 % of the file" in line
    assert as_json(found)["data"][0]["sampled"] is True


def test_other_data_that_is_given_is_the_jobs(tmp_path: Path) -> None:
    for name in ("rows.jsonl", "other.jsonl"):
        (tmp_path / name).write_text(ROWS)
    found = of_config(tmp_path, f"{PACKED}dataset_name: rows.jsonl\n", data=[tmp_path / "other.jsonl"])
    assert [Path(one.place.file).name for one in found.project.data] == ["other.jsonl"]


@pytest.mark.parametrize(
    ("more", "said"), [(0, "about 100 %"), (len(ROWS), "about 50 %"), (900 << 20, "less than 1 %")]
)
def test_a_small_share_is_no_share_of_none_and_costs_no_more(tmp_path: Path, more: int, said: str) -> None:
    """Of one line that never ends, no more than its beginning is read."""
    path = tmp_path / "rows.jsonl"
    path.write_text(ROWS)
    os.truncate(path, len(ROWS) + more)
    assert said in named_data._share(path, 2_000)
    tracemalloc.start()
    named_data._share(path, 2_001)
    assert tracemalloc.get_traced_memory()[1] < 4 * named_data.SIZE
    tracemalloc.stop()
