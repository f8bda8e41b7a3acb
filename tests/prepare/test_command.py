"""Promises of `dynotune prepare`: what it keeps a run takes, and every option does what its help says."""

import json
from pathlib import Path
from typing import Any

import pytest

from dynotune.cli import USER_ERROR, run
from tests.data.store.made import ROWS, write


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def prepare(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["prepare", *words, "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_prepare_keeps_what_the_next_takes_and_tells_how_it_packs(
    tmp_path: Path, cache: Path, stories: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write(tmp_path / "data.jsonl", ROWS[:4] * 20)
    words = ("--model_name_or_path", str(stories), "--dataset_name", str(data), "--on_bad_row", "skip")
    built = prepare(capsys, *words)["training data"]
    assert built["store"].startswith("built: first time; kept in ")
    about = built["about"]
    assert sum(about["lengths"].values()) == 80
    assert 0.5 < about["packing"]["fill"] <= 1
    assert about["packing"]["documents_per_micro_batch"] > 1
    assert about["packing"]["compression_ratio"] > 1
    hit = prepare(capsys, *words, "--verify", "--max_length", "16")["training data"]
    assert hit["store"].startswith("hit: 80 rows in ")
    assert hit["about"] == about
    assert hit["ledger"]["tokens_truncated"] > 0
    assert prepare(capsys, *words, "--rebuild")["training data"]["store"].startswith("built: asked for")
    assert prepare(capsys, *words, "--token_cache", "off")["training data"]["store"].startswith("off")
    exported = prepare(capsys, *words, "--export", str(tmp_path / "out"), "--export_packed", "512")["training data"]
    assert (tmp_path / "out" / "train.parquet").is_file()
    assert "from 80 documents" in exported["exported"]
    pruned = prepare(capsys, "--prune", "--older_than", "0")
    assert pruned["freed_bytes"] > 0
    assert len(pruned["removed"]) == 1
    assert prepare(capsys, *words)["training data"]["store"].startswith("built: first time")


def test_a_run_takes_what_prepare_kept(
    tmp_path: Path, cache: Path, stories: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write(tmp_path / "data.jsonl", ROWS[:4] * 4)
    words = ["--model_name_or_path", str(stories), "--dataset_name", str(data), "--on_bad_row", "skip"]
    prepare(capsys, *words)
    run_words = ["--output_dir", str(tmp_path / "run"), "--max_steps", "1", "--report_to", "none", "--use_cpu", "true"]
    assert run(["sft", *words, *run_words]) == 0
    assert "training data: token store: hit: 16 rows in " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--export_packed", "64"], "`--export` does not say where"),
        (["--export", "a.csv"], ".parquet or .jsonl file, or a folder"),
        (["--prune", "--older_than", "-1"], "Give 0 or more"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    tmp_path: Path, stories: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    data = write(tmp_path / "data.jsonl", ROWS[:4])
    assert run(["prepare", "--model_name_or_path", str(stories), "--dataset_name", str(data), *words]) == USER_ERROR
    assert said in capsys.readouterr().err
