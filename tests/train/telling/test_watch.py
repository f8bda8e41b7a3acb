"""Promise: a run says what holds it back while it runs, each thing once; a run that nothing holds back says nothing."""

import gc
import io
import json
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from transformers import TrainerCallback

from dynotune.execution.feed import Documents
from dynotune.measure import clock
from dynotune.measure.beside.seen import MachineSeen, seen
from dynotune.measure.device_memory import PhasePeaks
from dynotune.measure.signs.record import Sign
from dynotune.plan.layout import MicroBatch
from dynotune.plan.plan import Step
from dynotune.train import meter
from dynotune.train.meter import StepRecord, WindowRecord
from dynotune.train.telling.surroundings import Surroundings
from dynotune.train.telling.watch import Watch
from tests.measure.beside.test_seen import recorded
from tests.measure.test_device_memory import Device
from tests.tiny import chats
from tests.told_time import ToldTime, told_time


def window(numbers: range, account: Any, **more: Any) -> WindowRecord:
    steps = []
    for number in numbers:
        batch = MicroBatch(np.array([0]), 100)
        step = Step(number, 0.1, np.array([0]), np.array([97]), [batch], real_tokens=97, label_tokens=50)
        steps.append(StepRecord(step, 0.1, 1.0, 1.0, True, (), account(number), **more))
    return WindowRecord(steps, 0.0, True)


def test_nothing_is_told_before_it_begins() -> None:
    """As in a bench, whose arms are runs of their own."""
    told: list[Sign] = []
    watch = Watch(lambda step, sign: told.append(sign))
    for first in range(1, 401, 50):
        watch.take(window(range(first, first + 50), lambda n: {"data_wait": 1.0 + 9.0 * (n % 10 == 0)}))
        watch.judge({"memory/headroom": 0.0}, MachineSeen())
    assert told == []


def test_what_is_seen_in_a_step_is_told_at_once_and_once() -> None:
    told: list[tuple[int, str]] = []
    watch = Watch(lambda step, sign: told.append((step, sign.figure)))
    watch.see(Sign("recompiling", "before it begins", ""))
    watch.begin()
    watch.at(7)
    watch.see(Sign("recompiling", "a guard failed", ""))
    watch.see(Sign("recompiling", "another one", ""))
    watch.end()
    assert told == [(8, "a guard failed")]


def test_each_sign_is_told_once_and_the_warm_up_does_not_count(heard: tuple[Watch, list[Sign]]) -> None:
    watch, told = heard
    watch.take(window(range(1, 11), lambda n: {"data_wait": 9.0, "forward_backward": 1.0}, compiled=3))
    watch.judge({}, MachineSeen())
    assert told == []
    for first in (11, 41):
        watch.take(window(range(first, first + 30), lambda n: {"data_wait": 0.2, "forward_backward": 0.8}))
        watch.judge({"memory/headroom": 0.01, "memory/headroom_gib": 0.5}, MachineSeen(samples=9, other_processes=1))
    assert [sign.name for sign in told] == ["another-process", "memory-nearly-full", "data-bound"]
    assert "20 %" in told[2].figure


def test_retries_of_the_allocator_count_behind_the_warm_up(heard: tuple[Watch, list[Sign]]) -> None:
    """Also where the first row comes long behind it."""
    watch, told = heard
    around = Surroundings(torch.device("cpu"))
    device = Device()
    around.peaks = PhasePeaks(100 << 30, device.read, device.reset)
    for number in range(1, 51):
        (record,) = window(range(number, number + 1), lambda n: {"forward_backward": 1.0}).steps
        around.step(record.step)
        device.retries += number in (1, 4, 10)
    watch.take(window(range(1, 51), lambda n: {"forward_backward": 1.0}))
    row = around.peaks.figures(None)
    assert row["memory/retries"] == 3
    watch.judge({**row, "memory/headroom": 0.5}, MachineSeen(), around.retries)
    assert told == []
    device.retries += 1
    row = around.peaks.figures(None)
    watch.judge({**row, "memory/headroom": 0.5}, MachineSeen(), around.retries)
    (sign,) = told
    assert (sign.name, "1 times" in sign.figure) == ("memory-nearly-full", True)


def of_a_run(waits: float) -> list[Sign]:
    """A run of one step a second on recorded samples: 20 steps, an evaluation of 60 s with an idle GPU, 40 steps.

    waits: the share of each step in which the device waits for data.
    """
    told: list[Sign] = []
    watch, around = Watch(lambda step, sign: told.append(sign)), Surroundings(torch.device("cpu"))
    around.pauses.warm(10.0)
    watch.begin()
    account = {"data_wait": waits, "forward_backward": 1.0 - waits}
    watch.take(window(range(1, 21), lambda n: account))
    around.pauses.begin(20.0)
    around.pauses.end(80.0)
    watch.take(window(range(21, 61), lambda n: account))
    uses = [0.3] * 10 + [0.98 - waits] * 10 + [0.0] * 60 + [0.98 - waits] * 40
    watch.judge({}, seen(recorded(uses), [], lambda processes: 0, around.pauses.trained))
    watch.end()
    return told


def test_an_evaluation_with_an_idle_gpu_is_no_low_use_of_it() -> None:
    assert of_a_run(waits=0.0) == []


def test_a_data_bound_run_has_low_use_of_its_gpu() -> None:
    """The control."""
    told = of_a_run(waits=0.5)
    assert [sign.name for sign in told] == ["data-bound", "gpu-use-low"]
    assert told[1].figure == "a kernel runs in 48 % of the time of training"


def test_a_clean_run_is_called_clean(heard: tuple[Watch, list[Sign]]) -> None:
    watch, told = heard
    chance = np.random.default_rng(3)
    for first in range(1, 601, 50):
        watch.take(window(range(first, first + 50), lambda n: {"forward_backward": 0.1 * (1 + 0.02 * chance.random())}))
        watch.judge({}, MachineSeen(samples=30, utilisation_mean=0.97, utilisation_low=0.0))
    assert told == []


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> ToldTime:
    """A busy host makes every loader slow."""
    return told_time(monkeypatch, clock, meter)


def test_a_slow_loader_is_told_in_a_real_run_and_kept(
    run_tiny: Any, told: ToldTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    at: Any = Documents.at

    def slowly(self: Documents, rows: Any) -> Any:
        told.sleep(0.5)
        return at(self, rows)

    monkeypatch.setattr(Documents, "at", slowly)
    console = Console(width=200, record=True, file=io.StringIO())
    run = run_tiny(max_steps=20, logging_steps=5, speedups={"prefetch": "off"}, console=console)
    shown = console.export_text()
    assert shown.count("warning: data-bound: ") == 1
    kept = [json.loads(line) for line in (run.folder / "warnings.jsonl").read_text().splitlines()]
    assert [one["name"] for one in kept].count("data-bound") == 1
    assert "prefetch" in next(one["remedy"] for one in kept if one["name"] == "data-bound")


def test_a_run_without_a_cause_says_nothing_of_it(run_tiny: Any, told: ToldTime) -> None:
    """The control; and nothing that listens is left behind."""
    before = list(gc.callbacks)
    console = Console(width=200, record=True, file=io.StringIO())
    run = run_tiny(max_steps=20, logging_steps=5, speedups={"prefetch": "off"}, console=console)
    assert "data-bound" not in console.export_text()
    warnings = run.folder / "warnings.jsonl"
    assert not warnings.exists() or not warnings.read_text()
    assert gc.callbacks == before


def test_collections_of_garbage_are_seen(heard: tuple[Watch, list[Sign]]) -> None:
    watch, _ = heard
    watch.at(7)
    gc.collect()
    watch.end()
    watch.end()
    watch.at(8)
    gc.collect()
    assert watch._happened["garbage collection"] == {8}


def test_what_happened_in_steps_that_are_not_kept_is_forgotten(heard: tuple[Watch, list[Sign]]) -> None:
    watch, _ = heard
    for first in range(1, 2001, 50):
        for number in range(first, first + 50):
            watch.at(number)
            watch.mark("logging")
        watch.take(window(range(first, first + 50), lambda n: {"forward_backward": 0.1}))
    assert 400 < len(watch._happened["logging"]) < 1200


@pytest.mark.long
def test_a_callback_that_is_slow_now_and_then_is_told_as_host(run_tiny: Any, told: ToldTime) -> None:
    class Slow(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
            if state.global_step % 8 == 7:
                told.sleep(0.3)

    console = Console(width=300, record=True, file=io.StringIO())
    run_tiny(max_steps=80, logging_steps=80, rows=chats(16), callbacks=[Slow()], console=console)
    assert "every 8 steps" in console.export_text()
