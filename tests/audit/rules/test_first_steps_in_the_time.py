"""Promise: a speed is doubted where the first step's time is in it, however the time is taken, and only there."""

from pathlib import Path

import pytest

from tests.audit.rules.scripts import said

HEAD = """
import time
import torch
from transformers import AutoModelForCausalLM
torch.manual_seed(0)
model = torch.compile(AutoModelForCausalLM.from_pretrained("openai-community/gpt2").cuda())
opt = torch.optim.AdamW(model.parameters(), fused=True)
x = torch.randint(0, 50000, (8, 1024), device="cuda")

"""
STEP = "model(x, labels=x).loss.backward(); opt.step(); opt.zero_grad()"


def timed(before: str, ahead: str, behind: str, after: str) -> str:
    """Lines before the loop, ahead of and behind each step, and after the loop."""
    return f"{HEAD}{before}\nfor i in range(40):\n    {ahead}\n    {STEP}\n    {behind}\n{after}\n"


T, ADD = "t = time.perf_counter()", "{} += time.perf_counter() - t"
GATHER = "times.append(time.perf_counter() - t)"


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (timed("s = 0.0", T, ADD.format("s"), "print(40 * x.numel() / s, 'tokens/s')"), True),
        (timed("times = []", T, GATHER, "m = sum(times) / len(times)\nprint(x.numel() / m, 'tokens/s')"), True),
        (timed("times = []", T, GATHER, "print('tok/s', x.numel() / (sum(times) / len(times)))"), True),
        (timed("times = []", T, "dt = time.time() - t; times.append(dt)", "print(np.mean(times), 's/step')"), True),
        (timed("times = []", T, GATHER, "print('tokens/s', x.numel() / statistics.median(times))"), False),
        (timed("times = []", T, GATHER, "m = sum(times[5:]) / len(times[5:])\nprint(x.numel() / m, 'tok/s')"), False),
        (timed("times = []", T, f"if i >= 5: {GATHER}", "print('tok/s', x.numel() / np.mean(times))"), False),
        (timed("times = []", T, GATHER, "print(sum(times) / len(times))"), False),
        (timed(f"for _ in range(5): {STEP}\ns = 0.0", T, ADD.format("s"), "print(40 / s, 'it/s')"), False),
        (timed("s = 0.0", T, ADD.format("s"), "print(s)"), False),
    ],
)
def test_times_of_steps_that_are_gathered(tmp_path: Path, script: str, found: bool) -> None:
    assert bool(said("MSR004", tmp_path, script)) is found


TIMER = """import time


class {}:
    def __enter__(self):
        {}
        return self

    def __exit__(self, *_):
"""
WITHIN = """{}from clocks import Timer
{}
with Timer() as t:
    for _ in range(30):
        {}
print(30 * x.numel() / {})
"""


@pytest.mark.parametrize(
    ("before", "divisor", "takes", "found"),
    [
        ("", "t.seconds", "self.t = time.perf_counter()", True),
        ("", "t.seconds", "pass", False),
        (f"for _ in range(5):\n    {STEP}\n", "t.seconds", "self.t = time.perf_counter()", False),
        ("", "4", "self.t = time.perf_counter()", False),
    ],
)
def test_a_timer_around_the_loop(tmp_path: Path, before: str, divisor: str, takes: str, found: bool) -> None:
    clocks = TIMER.format("Timer", takes) + "        self.seconds = 1\n"
    text = WITHIN.format(HEAD, before, STEP, divisor)
    assert bool(said("MSR004", tmp_path, text, clocks__py=clocks)) is found


@pytest.mark.parametrize(
    ("record", "found"),
    [("begin.record()", True), (f"for _ in range(3): {STEP}\nbegin.record()", False)],
)
def test_events_around_the_loop(tmp_path: Path, record: str, found: bool) -> None:
    events = "begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))\n"
    after = "end.record()\nms = begin.elapsed_time(end)\nprint(40 * x.numel() / (ms / 1000), 'tokens/s')"
    assert bool(said("MSR004", tmp_path, timed(events + record, "pass", "pass", after))) is found


TRAINER = """
import time
{0}
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("openai-community/gpt2")
trainer = Trainer(model, TrainingArguments("out", max_steps=60), train_dataset=rows)
{1}
trainer.train()
{2}
"""
SPEED = "print(60 * 8 / (time.time() - t0), 'samples/s')"


@pytest.mark.parametrize(
    ("first", "then", "last", "found"),
    [
        ("t0 = time.time()", "", SPEED, True),
        ("t0 = time.time()", "t0 = time.time(); trainer.train()", SPEED, False),
        ("t0 = time.time()", "", "print('hours', (time.time() - t0) / 3600)", False),
        ("", "", "print(trainer.state.log_history)", False),
    ],
)
def test_a_clock_that_runs_while_the_model_is_loaded(
    tmp_path: Path, first: str, then: str, last: str, found: bool
) -> None:
    said_ = said("MSR004", tmp_path, TRAINER.format(first, then, last))
    assert any("from_pretrained" in one.message for one in said_) is found


CALLBACK = """
import time
from transformers import Trainer, TrainerCallback, TrainingArguments


class Speed(TrainerCallback):
    def on_train_begin(self, args, state, control, **_):
        self.t0 = time.time()

    def on_train_end(self, args, state, control, **_):
        print("steps/s", state.global_step / (time.time() - self.t0))


Trainer(model, TrainingArguments("out", {}), train_dataset=rows, callbacks=[Speed()]).train()
"""


@pytest.mark.parametrize(
    ("steps", "found"), [("max_steps=50", True), ("max_steps=5000", False), ("num_train_epochs=3", False)]
)
def test_the_whole_time_of_a_run_of_few_steps(tmp_path: Path, steps: str, found: bool) -> None:
    assert bool(said("MSR004", tmp_path, CALLBACK.format(steps))) is found
