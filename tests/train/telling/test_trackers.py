"""Trackers get every line under the names that dashboards know, and no tracker can stop, slow or outlive a run."""

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from accelerate import tracking
from accelerate.tracking import GeneralTracker

from dynotune.config.secrets import without_secrets
from dynotune.errors import ConfigError
from dynotune.report.settings import without_local_paths
from dynotune.train.telling import trackers as module
from dynotune.train.telling.trackers import Trackers, loggable_settings, tracker_names


class Fake(GeneralTracker):
    name = "fake"
    requires_logging_directory = False
    lines: list[tuple[dict[str, Any], int]]
    behaviour = "works"
    hold = threading.Event()

    def __init__(self, run_name: str, **options: Any) -> None:
        self.run_name, self.options = run_name, options
        Fake.lines, Fake.finished, Fake.settings = [], False, {}

    @property
    def tracker(self) -> "Fake":
        return self

    def start(self) -> None:
        if Fake.behaviour == "no login":
            raise PermissionError("not logged in")

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        Fake.settings = values

    def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:
        if Fake.behaviour == "hangs":
            Fake.hold.wait(600)
        if Fake.behaviour == "breaks":
            raise ConnectionError("server\nwent away")
        Fake.lines.append((values, step or 0))

    def finish(self) -> None:
        Fake.finished = True


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, "fake", Fake)
    monkeypatch.setattr(Fake, "behaviour", "works")
    Fake.hold.clear()
    yield Fake
    Fake.hold.set()


def open_fake(folder: Path, said: list[str], **config: Any) -> Trackers:
    return Trackers("fake", "project", "run", folder, config, say=said.append)


def test_metric_names_are_those_of_transformers_and_trl(fake: type[Fake], tmp_path: Path) -> None:
    said: list[str] = []
    trackers = open_fake(tmp_path, said, learning_rate=1e-3)
    trackers.log({"loss": 2.0, "learning_rate": 1e-3, "grad_norm": 0.5}, step=1)
    trackers.log({"step": 2, "eval_loss": 1.5, "eval_gsm8k_loss": 1.7, "examples": ["a:1"]}, step=2)
    trackers.finish()
    assert fake.lines == [
        ({"train/loss": 2.0, "train/learning_rate": 1e-3, "train/grad_norm": 0.5, "train/global_step": 1}, 1),
        ({"eval/loss": 1.5, "eval/gsm8k_loss": 1.7, "train/global_step": 2}, 2),
    ]
    assert fake.finished
    assert fake.settings == {"learning_rate": 1e-3}
    assert said == []


def test_a_tracker_that_breaks_is_said_once_and_never_raises(fake: type[Fake], tmp_path: Path) -> None:
    said: list[str] = []
    trackers = open_fake(tmp_path, said)
    fake.behaviour = "breaks"
    for step in range(5):
        trackers.log({"loss": 1.0}, step)
    trackers.finish()
    assert len(said) == 2, said
    assert "ConnectionError: server went away" in said[0]
    assert "metrics.jsonl" in said[0]
    assert "5 log lines less" in said[1]


def test_a_tracker_that_hangs_neither_slows_training_nor_the_end(
    fake: type[Fake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_PENDING", 10)
    said: list[str] = []
    trackers = open_fake(tmp_path, said)
    trackers.log({"loss": 1.0}, 0)  # pays for the import of transformers
    fake.behaviour = "hangs"
    begin = time.monotonic()
    for step in range(1, 31):
        trackers.log({"loss": 1.0}, step)
    trackers.finish(seconds=0.2)
    assert time.monotonic() - begin < 300  # the fake one hangs for 600 s at every line
    assert "more than 10 lines wait for it" in said[0]
    assert "did not finish in time: 10 log lines were not sent" in said[1]


def test_a_hung_tracker_does_not_keep_the_process_alive(tmp_path: Path) -> None:
    program = """
import threading, pathlib
from dynotune.train.telling.trackers import _Lane
class Hangs:
    def log(self, values, step): threading.Event().wait()
    def finish(self): pass
lane = _Lane("fake", print)
lane.start(Hangs)
lane.log({"loss": 1.0}, 1)
import time
lane.finish(time.monotonic() + 0.1)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "fake did not finish in time: 1 log lines were not sent" in done.stdout


def test_a_tracker_that_cannot_start_refuses_the_run_with_the_reason(fake: type[Fake], tmp_path: Path) -> None:
    fake.behaviour = "no login"
    with pytest.raises(ConfigError, match=r"fake could not start: PermissionError: not logged in"):
        open_fake(tmp_path, [])


def test_an_unknown_tracker_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"'tensorbord' is not a tracker. Did you mean 'tensorboard'"):
        tracker_names("tensorbord")


def test_a_tracker_that_is_not_installed_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "_available_trackers", [])
    with pytest.raises(ConfigError, match=r"comet_ml is not installed. `pip install comet-ml`"):
        tracker_names(["comet_ml"])
    assert tracker_names("all") == []


@pytest.mark.parametrize("nothing", ["none", [], ["none"], ""])
def test_none_opens_nothing(nothing: list[str] | str, tmp_path: Path) -> None:
    trackers = Trackers(nothing, "project", "run", tmp_path, {})
    trackers.log({"loss": 1.0}, 1)
    trackers.finish()
    assert trackers.names == []
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_holds_every_line(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    trackers = Trackers("tensorboard", "project", "run", tmp_path, {"learning_rate": 1e-3, "hub_token": "hf_x"})
    for step in (1, 2, 3):
        trackers.log({"loss": 3.0 - step, "eval_loss": 4.0 - step}, step)
    trackers.finish()
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(1, 2.0), (2, 1.0), (3, 0.0)]
    assert [e.value for e in events.Scalars("eval/loss")] == [3.0, 2.0, 1.0]
    text = events.Tensors("config/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "learning_rate: 0.001" in text
    assert "hf_x" not in text


def test_no_secret_and_no_unset_key_reaches_a_tracker() -> None:
    config = {
        "hub_token": "hf_x",
        "eos_token": "<|im_end|>",
        "env": {"WANDB_API_KEY": "x"},
        "model_init_kwargs": {"token": "hf_x", "attn_implementation": "sdpa"},
        "warmup_steps": None,
        "report_to": ["wandb"],
        "learning_rate": float("inf"),
    }
    assert loggable_settings(config) == {
        "eos_token": "<|im_end|>",
        "model_init_kwargs": '{"attn_implementation": "sdpa"}',
        "report_to": '["wandb"]',
        "learning_rate": "inf",
    }
    assert without_secrets({"model_init_kwargs": {"token": "x", "revision": "v1"}, "hub_token": "x"}) == {
        "model_init_kwargs": {"revision": "v1"}
    }


def test_absolute_paths_are_cut_to_their_last_part_and_hub_ids_stay() -> None:
    assert without_local_paths({"a": "/home/me/data/x.jsonl", "b": ["~/models/y/", "org/model", "data/z.jsonl"]}) == {
        "a": "x.jsonl",
        "b": ["y", "org/model", "data/z.jsonl"],
    }
    assert without_local_paths("C:\\models\\llama") == "llama"
