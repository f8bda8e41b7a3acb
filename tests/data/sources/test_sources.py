"""What a name stands for: nothing is guessed in silence, and a wrong name says what was tried."""

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict, IterableDataset

from dynotune.data.rows import BadRow, Record
from dynotune.data.sources.columns import parsed
from dynotune.data.sources.locate import Location, Source, open_object, open_splits
from dynotune.data.sources.splits import choose_split, group_by_split, slice_rows
from dynotune.errors import DataError


def write(path: Path, *texts: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def texts(source: Source) -> list[str]:
    return [row.values["text"] for row in map(parsed, source) if isinstance(row, Record)]


def splits(path: Path | str, **keys: Any) -> dict[str, list[str]]:
    return {name: texts(source) for name, source in open_splits(Location(str(path), **keys)).items()}


def test_one_file_is_the_train_split(tmp_path: Path) -> None:
    assert splits(write(tmp_path / "some_test.jsonl", "a", "b")) == {"train": ["a", "b"]}


def test_a_source_can_be_read_twice_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", "a", "b")
    path.write_text(path.read_text() + "broken\n\n")
    source = open_splits(Location(str(path)))["train"]
    assert (source.count(), source.count(), texts(source)) == (3, 3, ["a", "b"])


def test_a_glob_reads_shards_in_sorted_order_and_says_so(tmp_path: Path) -> None:
    for name in ("c", "a", "b"):
        write(tmp_path / f"{name}.jsonl", name)
    source = open_splits(Location(f"{tmp_path}/*.jsonl"))["train"]
    assert texts(source) == ["a", "b", "c"]
    assert "3 files in this order" in source.statement
    assert source.statement.index("a.jsonl") < source.statement.index("b.jsonl") < source.statement.index("c.jsonl")


def test_a_glob_over_several_splits_does_not_train_on_the_test_rows(tmp_path: Path) -> None:
    write(tmp_path / "train-0.jsonl", "a")
    write(tmp_path / "train-1.jsonl", "b")
    write(tmp_path / "test-0.jsonl", "t")
    assert splits(f"{tmp_path}/*.jsonl") == {"train": ["a", "b"], "test": ["t"]}
    assert splits(f"{tmp_path}/test-*.jsonl") == {"train": ["t"]}


def test_a_folder_of_shards_has_the_splits_its_names_say(tmp_path: Path) -> None:
    write(tmp_path / "data" / "train-00000-of-00002.jsonl", "a")
    write(tmp_path / "data" / "train-00001-of-00002.jsonl", "b")
    write(tmp_path / "validation" / "x.jsonl", "v")
    write(tmp_path / "extra.jsonl", "e")
    (tmp_path / "README.md").write_text("no data")
    (tmp_path / "dataset_infos.json").write_text("{}")
    write(tmp_path / ".cache" / "train.jsonl", "hidden")
    assert splits(tmp_path) == {"train": ["a", "b"], "validation": ["v"]}
    statement = open_splits(Location(str(tmp_path)))["train"].statement
    assert "left out, because no split is in their name" in statement
    assert "extra.jsonl" in statement
    assert splits(tmp_path, data_dir="validation") == {"train": ["v"]}
    assert splits(tmp_path, data_files="data/*.jsonl") == {"train": ["a", "b"]}
    assert splits(tmp_path, data_files={"test": "extra.jsonl"}) == {"test": ["e"]}


def test_a_folder_without_split_names_is_train(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", "b")
    write(tmp_path / "a.jsonl", "a")
    assert splits(tmp_path) == {"train": ["a", "b"]}


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("gsm8k_train.jsonl.gz", "train"),
        ("TEST.csv", "test"),
        ("my-val-0.parquet", "validation"),
        ("dev.jsonl", "validation"),
        ("contest.jsonl", None),
        ("training_set.jsonl", "train"),
        ("validated.jsonl", None),
        ("trainer.jsonl", None),
    ],
)
def test_split_words_are_whole_words(name: str, split: str | None) -> None:
    grouped, nameless = group_by_split([Path(name)])
    assert (list(grouped), bool(nameless)) == ([split] if split else [], split is None)


def test_builders_of_trl_configurations_are_local_files(tmp_path: Path) -> None:
    """`path: json` with `data_files` is what TRL users write."""
    file = write(tmp_path / "a.jsonl", "a")
    write(tmp_path / "b.jsonl", "b")
    assert splits("json", data_files=str(file)) == {"train": ["a"]}
    assert splits("json", data_files=[f"{tmp_path}/b*", str(file)]) == {"train": ["b", "a"]}
    assert splits("json", data_files={"train": str(file), "test": f"{tmp_path}/b.jsonl"}) == {
        "train": ["a"],
        "test": ["b"],
    }
    with pytest.raises(DataError, match="needs `data_files`"):
        open_splits(Location("json"))


def test_saved_datasets_are_read_with_their_splits(tmp_path: Path) -> None:
    data = Dataset.from_list([{"text": "a"}, {"text": "b"}, {"text": "c"}])
    data.select([2, 0]).save_to_disk(tmp_path / "one")
    DatasetDict({"train": data, "test": data.select([1])}).save_to_disk(tmp_path / "two")
    assert splits(tmp_path / "one") == {"train": ["c", "a"]}
    assert splits(tmp_path / "two") == {"train": ["a", "b", "c"], "test": ["b"]}
    assert open_splits(Location(str(tmp_path / "two")))["test"].count() == 1
    with pytest.raises(DataError, match="dataset_config"):
        open_splits(Location(str(tmp_path / "two"), name="main"))


def test_a_broken_saved_dataset_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(DataError, match="cannot be opened"):
        open_splits(Location(str(tmp_path)))


def test_a_name_that_is_nowhere_says_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "train.jsonl", "a")
    with pytest.raises(DataError, match=r"no such file or folder.*Did you mean .*train\.jsonl"):
        open_splits(Location(str(tmp_path / "trian.jsonl")))
    with pytest.raises(DataError, match="does not exist"):
        open_splits(Location(str(tmp_path / "nowhere" / "train.jsonl")))
    with pytest.raises(DataError, match="no file matches"):
        open_splits(Location(f"{tmp_path}/*.csv"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no data files"):
        open_splits(Location(str(tmp_path / "empty")))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"Tried the local path .*does not exist.*hub data set 'some-owner/some-set'"):
        open_splits(Location("some-owner/some-set"))


def test_hub_keys_on_a_local_file_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", "a")
    with pytest.raises(DataError, match="dataset_config"):
        open_splits(Location(str(file), name="main"))


def test_a_missing_split_lists_those_there_are() -> None:
    with pytest.raises(
        DataError, match=r"no split 'test' \(asked for by dataset_test_split\). It has: train, validation"
    ):
        choose_split({"train": 1, "validation": 2}, "test", "x", "dataset_test_split")
    with pytest.raises(DataError, match="not understood"):
        choose_split({"train": 1}, "train[:10%]+test", "x", "split")


@pytest.mark.parametrize(
    "asked",
    ["train", "train[:3]", "train[2:]", "train[2:5]", "train[:50%]", "train[25%:75%]", "train[-3:]", "train[:-4]"],
)
def test_slices_mean_what_they_mean_in_datasets(tmp_path: Path, asked: str) -> None:
    from datasets import load_dataset

    file = write(tmp_path / "a.jsonl", *[str(i) for i in range(11)])
    theirs = load_dataset("json", data_files=str(file), split=asked, cache_dir=str(tmp_path / "cache"))["text"]
    source, bounds = choose_split(open_splits(Location(str(file))), asked, "x", "split")
    rows = map(parsed, slice_rows(source, bounds, source.count))
    ours = [row.values["text"] for row in rows if isinstance(row, Record)]
    assert [str(text) for text in theirs] == ours


def test_objects_from_python() -> None:
    rows = [{"text": "a"}, {"text": "b"}]

    class LikeTorch:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> dict[str, str]:
            return rows[index]

    for given in (rows, tuple(rows), Dataset.from_list(rows), LikeTorch()):
        source = open_object(given, "train_dataset")
        assert texts(source) == ["a", "b"]
        assert [str(row.place) for row in source] == ["train_dataset:1", "train_dataset:2"]
    stream = open_object(IterableDataset.from_generator(lambda: iter(rows)), "train_dataset")
    assert texts(stream) == ["a", "b"]
    assert "read to its end" in stream.statement


def test_objects_that_are_no_rows_are_refused_by_name() -> None:
    one = Dataset.from_list([{"a": 1}])
    with pytest.raises(DataError, match=r"its splits \(train, test\)"):
        open_object(DatasetDict({"train": one, "test": one}), "train_dataset")
    for wrong in ("data.jsonl", {"text": ["a"]}, 3, iter([{}])):
        with pytest.raises(DataError, match=f"{type(wrong).__name__} cannot be read"):
            open_object(wrong, "train_dataset")
    (row,) = open_object(["text"], "train_dataset")
    assert isinstance(row, BadRow)
    assert row.reason == "row-is-not-a-mapping"
