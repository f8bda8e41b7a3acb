"""Promise: the data set that a trainer gets is known where a script names one, and is never guessed."""

import textwrap
from pathlib import Path

import pytest

from dynotune.audit.facts.job import Job
from dynotune.audit.read.python import jobs_of, read_script
from dynotune.audit.schema import Schemas

ROOT = Path("project")
SCHEMAS = Schemas.of()


def job_of(code: str) -> Job:
    imports = (
        "from datasets import Dataset, concatenate_datasets, load_dataset\nfrom trl import SFTConfig, SFTTrainer\n"
    )
    text = f"{imports}\n{textwrap.dedent(code)}\n"
    script = read_script(ROOT / "train.py", text, ROOT)
    assert not script.unread
    (job,) = jobs_of(script, {script.file: script}, SCHEMAS, {})
    return job


def trained_on(data: str, before: str = "") -> Job:
    return job_of(f"{before}\nSFTTrainer('a/b', args=SFTConfig(output_dir='o'), train_dataset={data})")


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ("load_dataset('json', data_files='chats.jsonl', split='train')", "chats.jsonl"),
        ("load_dataset('parquet', data_files=['a.parquet'])['train']", "a.parquet"),
        ("load_dataset('json', data_files={'train': 'a.jsonl'}, split='train')", "a.jsonl"),
        ("load_dataset('org/chats', split='train').shuffle(seed=1).select(range(10))", "org/chats"),
        ("load_dataset('data/chats')['train'].train_test_split(0.1)['train']", "data/chats"),
        ("load_dataset('org/chats', split='train[:100]')", "org/chats"),
        ("load_dataset(path='org/chats')['train'].map(lambda row: row)", "org/chats"),
    ],
)
def test_what_is_loaded_is_named(data: str, named: str) -> None:
    job = trained_on(data)
    assert job.get("dataset_name") == named
    assert job.place("dataset_name").line == 5
    assert job.get("dataset_train_split", "train") == "train"
    assert job.makes_rows == any(name in data for name in ("map", "select", "train_test_split", "[:"))


@pytest.mark.parametrize(
    "data",
    [
        "load_dataset('json', data_files=['a.jsonl', 'b.jsonl'])['train']",
        "load_dataset('json', data_files={'train': 'a.jsonl', 'test': 'b.jsonl'})['train']",
        "load_dataset('json')['train']",
        "load_dataset(open('name').read())['train']",
        "concatenate_datasets([load_dataset('a/b'), load_dataset('c/d')])",
        "Dataset.from_list([{'text': 'x'}])",
        "prepared",
        "rows[0]",
        "None",
    ],
)
def test_what_is_not_one_known_data_set_has_no_name(data: str) -> None:
    job = trained_on(data)
    assert not job.is_given("dataset_name")
    assert not job.makes_rows


def test_names_and_functions_are_followed() -> None:
    job = job_of(
        """
        import argparse

        def data(path):
            rows = load_dataset("json", data_files=path, split="train")
            rows = rows.filter(len)
            return rows

        def main():
            parser = argparse.ArgumentParser()
            parser.add_argument("--data", default="chats.jsonl")
            args = parser.parse_args()
            rows = data(args.data)
            rows = rows.shuffle()
            SFTTrainer("a/b", args=SFTConfig(output_dir="o"), train_dataset=rows)
        """
    )
    assert job.get("dataset_name") == "chats.jsonl"


def test_a_branch_is_no_answer() -> None:
    before = "rows = load_dataset('a/b')['train']\nif small:\n    rows = load_dataset('c/d')['train']"
    assert not trained_on("rows", before).is_given("dataset_name")
    assert trained_on("rows", before.partition("\nif")[0]).get("dataset_name") == "a/b"


def test_splits_and_configurations_of_a_data_set() -> None:
    job = trained_on("load_dataset('org/chats', 'english', split='train_sft')")
    assert (job.get("dataset_config"), job.get("dataset_train_split")) == ("english", "train_sft")
    assert trained_on("load_dataset('org/chats')['train_sft']").get("dataset_train_split") == "train_sft"


def test_a_name_that_leads_back_to_itself_ends() -> None:
    assert not trained_on("rows", "rows = rows.map(f)\nfor i in x:\n    rows = rows.map(f)").is_given("dataset_name")
