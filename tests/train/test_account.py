"""Promise: every second of a run has one kind, in each row and in the whole run, through interruptions too; measuring it
never waits for the device and costs little."""

import io
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from rich.console import Console
from transformers import TrainerCallback

from dynotune.execution.feed import Documents
from dynotune.measure import compiles
from dynotune.measure.clock import WindowClock
from dynotune.measure.flops import Attention, Flops
from dynotune.measure.peaks import Peak
from dynotune.measure.reach import Reach
from dynotune.measure.utilisation import Utilisation
from dynotune.measure.wall import PRODUCTIVE, Kind, wall
from dynotune.plan.layout import MicroBatch
from dynotune.plan.plan import Step
from dynotune.report.speed import speed_sentence
from dynotune.speedups.declared.packed_execution import PackedExecution
from dynotune.train import flow
from dynotune.train.checkpoints.checkpoints import Checkpoints
from dynotune.train.checkpoints.contents import read_state
from dynotune.train.faults.limits import Limits
from dynotune.train.folder.lines import Lines
from dynotune.train.meter import PROMPT, WAITED, Meter
from dynotune.train.state import Progress, Trainee
from dynotune.train.telling.journal import Journal
from dynotune.train.telling.own_cost import OwnCost
from dynotune.train.telling.progress import ProgressDisplay
from dynotune.train.telling.watch import Watch
from tests.audit.speed import slower
from tests.tiny import chats


def times_of(row: dict[str, Any]) -> dict[str, float]:
    return {name.removeprefix("time/"): seconds for name, seconds in row.items() if name.startswith("time/")}


def test_the_kinds_of_a_row_are_its_wall_time_and_those_of_all_rows_the_run(run_tiny: Any) -> None:
    result = run_tiny(
        max_steps=6, logging_steps=2, eval_dataset=chats(2), eval_strategy="steps", eval_steps=3,
        save_strategy="steps", save_steps=4,
    )  # fmt: skip
    rows = [row for row in result.metrics if "wall_seconds" in row]
    assert [row["step"] for row in rows] == [2, 4, 6]
    for row in rows:
        assert sum(times_of(row).values()) == pytest.approx(row["wall_seconds"])
        assert set(times_of(row)) <= {str(kind) for kind in Kind}
    # An evaluation or a checkpoint comes behind the row of its step, and so is in the next one.
    assert ["evaluation" in times_of(row) for row in rows] == [False, True, False]
    assert ["checkpoint" in times_of(row) for row in rows] == [False, False, True]
    assert ["first_step" in times_of(row) for row in rows] == [True, False, False]
    whole = result.summary
    assert sum(times_of(whole).values()) == pytest.approx(whole["wall_seconds"])
    assert whole["wall_seconds"] == pytest.approx(whole["process_seconds"], rel=1e-3)
    productive = sum(times_of(whole).get(kind, 0.0) for kind in PRODUCTIVE)
    assert whole["goodput"] == pytest.approx(productive / whole["wall_seconds"])
    assert 0 < whole["goodput"] < 1
    assert "communication" not in times_of(whole), "one process waits for nobody"


def test_each_kind_gets_what_is_its_own(run_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sleeps of known length in a callback, the loader and the optimizer stand where they happened."""

    class Slow(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            time.sleep(0.03)

        def on_optimizer_step(self, *_: Any, **__: Any) -> None:
            time.sleep(0.05)

        def on_evaluate(self, *_: Any, **__: Any) -> None:
            time.sleep(0.1)

    at: Any = Documents.at

    def slowly(self: Documents, rows: Any) -> Any:
        time.sleep(0.07)
        return at(self, rows)

    monkeypatch.setattr(Documents, "at", slowly)
    settings = {"speedups": {"prefetch": "off"}, "eval_dataset": chats(1), "eval_strategy": "steps", "eval_steps": 2}
    result = run_tiny(max_steps=4, logging_steps=4, callbacks=[Slow()], **settings)
    took = times_of(result.summary)
    assert took["host"] >= 4 * 0.03
    assert took["optimizer"] >= 3 * 0.05, "the first step's is in first_step"
    assert took["data_wait"] >= 4 * 0.07
    assert took["evaluation"] >= 2 * 0.1
    assert took["first_step"] >= 0.05


def test_what_setting_up_took_is_told_by_part(run_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait of half a minute before the first step has a name: the speed-up, the trial of memory, the reference."""
    made = PackedExecution.install

    def slow(self: PackedExecution, site: Any) -> Any:
        time.sleep(0.3)
        return made(self, site)

    monkeypatch.setattr(PackedExecution, "install", slow)
    monkeypatch.setattr(flow, "LONG", 0.3)
    console = Console(record=True, width=200)
    summary = run_tiny(max_steps=2, console=console).summary
    parts = {name: took for name, took in summary.items() if name.startswith("set_up/")}
    assert "set_up/rotary_kernel" not in parts, "what was refused at once has no figure"
    assert 0.3 <= parts["set_up/packed_execution"] <= sum(parts.values()) <= summary["time/set_up"]
    assert re.search(r"set up in \d+\.\d s: .*packed_execution \d+\.\d s", console.export_text())


def test_a_resume_goes_on_with_the_account_and_says_what_was_lost(run_tiny: Any, tmp_path: Path) -> None:
    saves: dict[str, Any] = {"save_strategy": "steps", "save_steps": 3}
    first = run_tiny(max_steps=5, **saves).summary
    progress = read_state(tmp_path / "run" / "checkpoints" / "step-3")["progress"]
    before, counted = wall(progress["account"]), wall(progress["open_row"]["account"])
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    behind = sum(row["wall_seconds"] for row in rows if row["step"] > 3)
    second = run_tiny(
        max_steps=6, resume_from_checkpoint=str(tmp_path / "run" / "checkpoints" / "step-3"), **saves
    ).summary
    assert second["time/lost"] == pytest.approx(behind - counted, abs=1e-3)
    assert 0 <= counted < behind
    assert second["wall_seconds"] == pytest.approx(before + second["time/lost"] + second["process_seconds"], abs=1e-3)
    assert second["time/loading"] > first["time/loading"], "both processes loaded"
    assert second["examples"] == 12
    assert "time/lost" not in first


def test_a_checkpoint_without_an_account_is_said(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an earlier version wrote it. The control is a resume from one that has an account."""
    run_tiny(max_steps=2, save_strategy="steps", save_steps=1)
    restore: Any = Checkpoints.restore

    def without(self: Checkpoints, path: Path, trainee: Trainee) -> Any:
        done = restore(self, path, trainee)
        trainee.progress.account = {}
        return done

    for patched in (False, True):
        if patched:
            monkeypatch.setattr(Checkpoints, "restore", without)
        console = Console(width=300, record=True, file=io.StringIO())
        checkpoint = str(tmp_path / "run" / "checkpoints" / "step-1")
        run_tiny(max_steps=2, save_strategy="steps", save_steps=1, resume_from_checkpoint=checkpoint, console=console)
        assert ("has no account of wall time" in console.export_text()) == patched


def test_cumulative_figures_go_on_and_rates_are_of_all_kinds_of_tokens(run_tiny: Any) -> None:
    rows = run_tiny(max_steps=4, logging_steps=2).metrics
    assert [row["num_examples"] for row in rows] == [4, 8]
    assert rows[1]["num_label_tokens"] == rows[0]["label_tokens"] + rows[1]["label_tokens"]
    for row in rows:
        assert row["tokens_per_second_per_device"] == row["tokens_per_second"]
        assert 0 < row["label_tokens_per_second"] <= row["tokens_per_second"] <= row["processed_tokens_per_second"]
        assert row["wasted/padding"] >= 0
        assert row["meter_microseconds_per_step"] > 0
        assert row["host/rss_gib"] > 0
        assert not any(name.startswith(("gpu/", "memory/")) for name in row), "a CPU has none, and nothing is made up"


class FakeEvent:
    """Of a device whose clock is the host's; it counts what would wait."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.at = 0.0

    def record(self, *_: object) -> None:
        self.at = time.perf_counter()

    def query(self) -> bool:
        return False

    def elapsed_time(self, end: "FakeEvent") -> float:
        return 1e3 * (end.at - self.at)

    def synchronize(self) -> None:
        raise AssertionError("the host waited for the device")


def test_no_step_waits_for_a_gpu_and_measuring_it_costs_microseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    def waits(*_: object, **__: object) -> None:
        raise AssertionError("the host waited for the device")

    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", waits)
    monkeypatch.setattr(torch.Tensor, "item", waits)
    monkeypatch.setattr(torch.Tensor, "tolist", waits)
    monkeypatch.setattr(torch.Tensor, "__bool__", waits)
    monkeypatch.setattr(torch.Tensor, "__float__", waits)
    meter = Meter(torch.device("cpu"))
    meter.clock.cuda = True
    meter.clock._began = FakeEvent()
    meter.clock._began.record()
    step = Step(1, 0.5, np.array([0]), np.array([10]), [], real_tokens=10, label_tokens=5)
    vector = torch.zeros(3)
    for _ in range(40):
        for _ in meter.waited(iter(range(4)), 4):
            pass
        meter.now(Kind.COMMUNICATION)
        meter.now(Kind.OPTIMIZER)
        meter.add(step, 0.1, vector)
    own = meter.own_seconds / 40
    assert 0 < own < 1e-3 * slower(), "processor time; what a step costs is said in each row"
    assert len(meter.steps) == 40
    with pytest.raises(AssertionError, match="waited"):
        float(vector[0])  # the control: it would have been seen


class Counted(FakeEvent):
    """A device that has always caught up; all that is asked of its events is counted."""

    calls: ClassVar[Counter[str]] = Counter()

    def __init__(self, enable_timing: bool = False) -> None:
        super().__init__()
        self.calls["made"] += 1

    def record(self, *streams: object) -> None:
        assert streams, "an event that is not told its stream looks for it"
        self.calls["recorded"] += 1
        super().record()

    def query(self) -> bool:
        self.calls["asked"] += 1
        return True

    def elapsed_time(self, end: FakeEvent) -> float:
        self.calls["read"] += 1
        return super().elapsed_time(end)


def test_a_step_marks_no_more_than_its_figures_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU each mark is a call of the driver, and so is each reading of one: a step has one where each
    micro-batch is there, one where each further one is asked for, and one for each kind behind them. None
    is made once the first windows are read. The control is a step whose micro-batches were there already."""
    monkeypatch.setattr(torch.cuda, "Event", Counted)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "the stream")
    meter = Meter(torch.device("cuda"))
    meter.late.cuda = False  # copies to pinned memory need a GPU; `tests/measure/test_late.py` has them
    step = Step(1, 0.5, np.array([0]), np.array([10]), [], real_tokens=10, label_tokens=5)
    vector = torch.zeros(3)

    def slowly(count: int) -> Iterator[int]:
        for i in range(count):
            time.sleep(2 * PROMPT)
            yield i

    def window(batches: Callable[[int], Iterator[int]], count: int) -> Counter[str]:
        Counted.calls.clear()
        for _ in range(10):
            assert [*meter.waited(batches(count), count)] == [*range(count)]
            meter.now(Kind.OPTIMIZER)
            meter.add(step, 0.1, vector)
        meter.close(log=True)
        (found,) = meter.windows()
        assert ("data_wait" in found.account) == (batches is slowly)
        assert sum(found.account.values()) == pytest.approx(
            sum(map(wall, (one.account for one in found.steps))), abs=1e-3
        )
        return Counter(Counted.calls)

    window(slowly, 4)
    for count in (1, 4):
        marks = 10 * (2 * count - 1 + 2) + 1  # and one where the window ends
        assert window(slowly, count) == {"recorded": marks, "read": marks, "asked": 10}
    assert window(lambda count: iter(range(count)), 1) == {"recorded": 31, "read": 31, "asked": 10}


def test_a_device_that_has_caught_up_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(FakeEvent, "query", lambda self: True)
    meter = Meter(torch.device("cpu"))
    meter.clock.cuda, meter.clock._began = True, FakeEvent()
    for _ in range(2):
        meter.now(Kind.FORWARD_BACKWARD)
        meter.now(Kind.OPTIMIZER)
        meter.clock.step_end()
    assert meter.clock.window().caught_up == [True, True]


def test_an_update_that_waits_for_the_device_says_nothing_of_who_was_ahead(
    run_tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind its wait the device has always caught up. In a run: `adagrad` has no fused kernel, `adamw_torch` has."""
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(FakeEvent, "query", lambda self: True)
    meter = Meter(torch.device("cpu"))
    meter.clock.cuda, meter.clock._began = True, FakeEvent()
    for waited in (True, False):
        meter.now(Kind.FORWARD_BACKWARD)
        meter.now(Kind.OPTIMIZER)
        meter.clock.step_end(waited)
    assert meter.clock.window().caught_up == [None, True]
    told: list[bool] = []
    step_end = WindowClock.step_end

    def heard(self: WindowClock, waited: bool = False) -> None:
        told.append(waited)
        step_end(self, waited)

    monkeypatch.setattr(WindowClock, "step_end", heard)
    run_tiny(max_steps=1, optim="adagrad")
    run_tiny(max_steps=1, optim="adamw_torch", overwrite_output_dir=True)
    assert told == [True, False]


def test_what_an_evaluation_compiles_is_no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its seconds are the evaluation's already, and a graph made there is no recompilation of training."""
    made = {"graphs": 0, "seconds": 0.0}
    monkeypatch.setattr(compiles, "graphs", lambda: made["graphs"])
    monkeypatch.setattr(compiles, "compile_seconds", lambda: made["seconds"])

    def compile_one() -> None:
        made["graphs"] += 1
        made["seconds"] += 1e-3

    meter = Meter(torch.device("cpu"))
    for n in range(1, 4):
        step = Step(n, 0.5, np.array([0]), np.array([10]), [], real_tokens=10, label_tokens=5)
        meter.now(Kind.FORWARD_BACKWARD)
        time.sleep(0.01)
        if n == 3:
            compile_one()
        meter.add(step, 0.1, torch.ones(3))
        if n == 2:
            compile_one()  # by a callback between steps
            with meter.aside(Kind.EVALUATION):
                compile_one()
    meter.close(log=True)
    (window,) = meter.windows(wait=True)
    assert [record.compiled for record in window.steps] == [0, 0, 2]
    assert window.account["compile"] == pytest.approx(2e-3)
    assert "evaluation" in window.account


def test_a_host_that_is_busy_with_others_is_no_cost_of_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark that others held up, as a sleep does, took no processor. The control: one that works does."""
    enter = WindowClock.enter

    def held_up(self: WindowClock, kind: Kind) -> None:
        time.sleep(0.05)
        enter(self, kind)

    def works(self: WindowClock, kind: Kind) -> None:
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass
        enter(self, kind)

    # On a GPU the driver may hold up whoever comes next, spinning: no mark takes a millisecond by itself.
    for how, longest, least, most in ((held_up, 1.0, 0.0, 0.01), (works, 1.0, 0.05, 1.0), (works, WAITED, 0.0, 0.01)):
        monkeypatch.setattr(WindowClock, "enter", how)
        meter = Meter(torch.device("cpu"))
        meter._most = longest
        for number in range(1, 4):  # the first two are timed, and the second one stands for those behind it
            step = Step(number, 0.5, np.array([0]), np.array([10]), [], real_tokens=10, label_tokens=5)
            meter.now(Kind.OPTIMIZER)
            meter.add(step, 0.1, torch.ones(3))
        assert 3 * least <= meter.own_seconds < most


def test_every_run_states_what_measuring_took(run_tiny: Any) -> None:
    """Also one that writes no rows; more than it is held to is said to be, where it is not that of the first calls."""
    console = Console(width=300, record=True, file=io.StringIO())
    summary = run_tiny(max_steps=3, logging_strategy="no", console=console).summary
    own = summary["meter_microseconds_per_step"]
    assert own > 0
    assert summary["meter_steps"] == 3
    assert f"measuring took {own:,.0f} microseconds of the host a step" in console.export_text()
    assert "held to" not in speed_sentence({**summary, "meter_microseconds_per_step": 1500.0})
    figures = {"tokens_per_second": 1.0, "steps": 50, "no_mfu": "a CPU", "meter_microseconds_per_step": 201.0}
    assert "201 microseconds of the host a step, more than the 200 that it is held to" in speed_sentence(figures)
    for other in ({"meter_microseconds_per_step": 199.0}, {"steps": 49}, {"meter_steps": 49}):
        assert "held to" not in speed_sentence({**figures, **other})


def test_what_others_of_the_meter_took_counts_once() -> None:
    own, watching = OwnCost(), 0.0
    own.others = (lambda: watching,)
    own.add(40e-6, steps=2)
    watching += 60e-6
    own.hear()
    watching += 100e-6  # within the making of the row, which is measured whole
    own.leave_out()
    own.add(300e-6)
    assert own.since_the_last_row() == pytest.approx(200.0)
    own.add(10e-6, steps=1)
    own.hear()
    assert own.since_the_last_row() == pytest.approx(10.0)
    assert own.a_step == pytest.approx(410 / 3)
    assert OwnCost().a_step is None


def works(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_writing_a_row_is_in_what_measuring_took_and_callbacks_of_users_are_not() -> None:
    """Once each, though a listener that watches tells its own seconds, too."""
    watching = 0.0

    def judges(row: dict[str, Any]) -> None:
        nonlocal watching
        works(0.02)
        watching += 0.02

    listeners = [lambda row: works(0.03), judges]
    journal = Journal((), Progress(), ["here"], torch.device("cpu"), Limits(3, 10), listeners)  # type: ignore[list-item]
    journal.own.others = (lambda: watching,)
    journal.own.add(0.0, steps=1)
    journal.callbacks = lambda row: works(0.2)
    journal.write({"step": 1})
    assert 0.05 <= 1e-6 * journal.own.since_the_last_row() < 0.15


def test_the_cost_of_measuring_is_below_200_microseconds_a_step(tmp_path: Path) -> None:
    """Processor time of this thread: a busy host does not change it. All that a step of four micro-batches costs, with the
    looks for periods, and with a row for every ten, written and shown. Of these tens the middle one: one that others disturb
    does not change it."""
    told: list[Any] = []
    rows: list[dict[str, Any]] = []
    flops = Flops(10**6, 0, 10**5, (Attention(Reach(), 10**4, 2 * 10**4),))
    utilisation = Utilisation(flops, Peak(1e12, "given"))
    console = Console(file=(tmp_path / "console").open("w"), width=200)
    lines, display = Lines(tmp_path), ProgressDisplay(console, 400, 0, off=False)
    journal = Journal(
        (), Progress(), ["here"], torch.device("cpu"), Limits(3, 10),
        [rows.append, lambda row: lines.append("metrics.jsonl", row), display.log], utilisation
    )  # fmt: skip
    meter, watch = Meter(torch.device("cpu")), Watch(lambda step, sign: told.append(sign))
    journal.own.others = (lambda: watch.own_seconds,)
    batches = [MicroBatch(np.arange(4), 1024) for _ in range(4)]
    watch.begin()
    vector, took = torch.ones(3), []
    for ten in range(40):
        began = time.thread_time()
        for n in range(10 * ten + 1, 10 * ten + 11):
            step = Step(n, n / 1e3, np.arange(16), np.full(16, 250), batches, real_tokens=4000, label_tokens=2000)
            for _ in meter.waited(iter(batches), len(batches)):
                pass
            meter.now(Kind.COMMUNICATION)
            meter.now(Kind.OPTIMIZER)
            meter.add(step, 0.1, vector)
            if n % 10 == 0:
                meter.close(log=True)
            for window in meter.windows():
                watch.take(window)
                journal.take(window)
        took.append(1e6 * (time.thread_time() - began) / 10)
    watch.end()
    assert median(took) < 200 * slower()
    stated = [row["meter_microseconds_per_step"] for row in rows]
    assert len(stated) == len(took)
    assert 1 / 3 < median(stated) / median(took) < 3, "what is stated is what it costs, looks for periods too"
