"""Promise: a profile of several ranks names the slowest one, the wait for it, and what communication costs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynotune.measure.kernel_classes import Work
from dynotune.profile.analysis.analyse import analyse
from dynotune.profile.records.record_file import read_record
from tests.parallel.processes import on_ranks
from tests.profile.observing.test_own import config
from tests.profile.on_ranks import profiled
from tests.tiny import chats, tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a tiny model and rows."""
    path = tmp_path_factory.mktemp("ranks")
    tiny_model().save_pretrained(path / "model")
    tiny_tokenizer().save_pretrained(path / "model")
    (path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chats(40)))
    return path


@pytest.mark.parametrize("slow", [1, 0])
def test_the_slowest_of_two_ranks_is_named_and_so_is_the_wait_for_it(slow: int, folder: Path, tmp_path: Path) -> None:
    """Rank 0 is shown: it waits for the other one, or has the other one wait for it."""
    settings = config(folder, speedups={"prefetch": "off"}).public_dict()
    on_ranks(2, profiled, tmp_path, settings, slow, folder=tmp_path)
    record = read_record(tmp_path / "record.json.gz")
    assert record.environment.world == 2
    assert record.own_seconds[slow] - record.own_seconds[1 - slow] > 0.1
    found = analyse(record)
    wait = next(one for one in found.found if one.name == "ranks-wait")
    assert f"rank {slow} is the slowest: its own work takes" in wait.sentence
    assert wait.seconds > 0.1
    classes = {row.work for row in found.rows}
    assert classes & {Work.COMMUNICATION, Work.RANKS}
    assert any("hidden copies and communication" in line for line in found.cannot_know), "a CPU cannot tell"


@pytest.mark.long
def test_gpus_on_the_command_line_starts_ranks_and_each_is_known(folder: Path, tmp_path: Path) -> None:
    written = tmp_path / "config.yaml"
    written.write_text(config(folder).to_yaml(), encoding="utf-8")
    words = ["profile", "--config", str(written), "--gpus", "2", "--steps", "4", "--warm_up", "3", "--json"]
    ran = subprocess.run(
        [sys.executable, "-m", "dynotune", *words, "--out", str(tmp_path / "out")],
        env={**os.environ, "DYNOTUNE_CACHE": str(folder / "cache")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert json.loads(ran.stdout)["format"] == 1
    record = read_record(tmp_path / "out" / "record.json.gz")
    assert record.environment.world == 2
    assert sorted(record.own_seconds) == [0, 1]
