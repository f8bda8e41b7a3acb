"""Promise: nothing grows with the number of steps: not memory, objects, hooks, open files, threads or processes."""

import mmap
import os
import threading
from typing import Any

import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

from tests.tiny import chats, tiny_model
from tests.train.steadiness import BOUNDS, Watch, growing

SETTINGS: dict[str, Any] = {
    "logging_steps": 5,
    "eval_strategy": "steps",
    "eval_steps": 100,
    "save_strategy": "steps",
    "save_steps": 50,
    "save_total_limit": 2,
    "learning_rate": 1e-4,
}

FULL = 600
"""Steps after which the last 512, in which slow-downs that come back are looked for, are all there."""


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def held(watch: Watch, *steps: int) -> str:
    return "; ".join(
        f"step {step}: " + ", ".join(f"{value:,.0f} {name}" for name, value in watch.at(step).items() if name != "step")
        for step in steps
    )


@pytest.mark.long
def test_a_long_run_needs_no_more_than_a_short_one(run_tiny: Any, request: pytest.FixtureRequest) -> None:
    """1,000 steps that are logged, evaluated and saved; the tiny pretrained model where there is one."""
    watch = Watch()
    settings = {**SETTINGS, "max_steps": 1000}
    if os.environ.get("DYNOTUNE_SHARED"):
        place = request.getfixturevalue("stories")
        model, tokenizer = AutoModelForCausalLM.from_pretrained(place), AutoTokenizer.from_pretrained(place)
    else:
        model, tokenizer = tiny_model(), None
        settings |= {"gradient_checkpointing": True}
    rows, held_out = chats(24), chats(4, seed=1)
    there = children()
    result = run_tiny(model=model, tokenizer=tokenizer, rows=rows, eval_dataset=held_out, callbacks=[watch], **settings)
    growth = watch.growth(after=FULL)
    told = f"{held(watch, 100, 500, 1000)}. In 1,000 steps: {growth}"
    print(told)
    assert not growing(growth), told
    assert len(list((result.folder / "checkpoints").glob("step-*"))) == 2
    assert watch.at(1000)["handles"] <= watch.at(500)["handles"]
    assert watch.at(1000)["children"] <= len(there) + 1, "the process that samples the machine beside a run"
    assert children() <= there, "it ends with the run"


class Leaks(TrainerCallback):  # type: ignore[misc]
    """What a defect would do at each step: keep memory, objects, a tensor, a file, a thread and a hook."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.files: list[int] = []
        self.end = threading.Event()

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        # Pages of their own: in a process that has freed much, as one that ran other tests, the heap hands out what it has,
        # and a leak of its memory does not show in what the process holds.
        pages = mmap.mmap(-1, 1 << 20)
        pages.write(b"1" * (1 << 20))
        self.kept += [pages, [[]], torch.ones(1)]
        if state.global_step % 5 == 0:  # one in five steps is enough to be seen
            self.files.append(os.open(os.devnull, os.O_RDONLY))
            thread = threading.Thread(target=self.end.wait, daemon=True)
            thread.start()
            model.register_forward_hook(lambda *_: None)

    def close(self) -> None:
        self.end.set()
        for handle in self.files:
            os.close(handle)


def test_leaks_are_found(run_tiny: Any) -> None:
    """Negative control: a shorter run with each kind of leak."""
    watch, leaks = Watch(every=20), Leaks()
    try:
        run_tiny(max_steps=200, logging_steps=5, callbacks=[leaks, watch])
    finally:
        leaks.close()
    assert growing(watch.growth(after=60)) == BOUNDS.keys() - {"children"}


def test_what_holds_steady_does_not_grow() -> None:
    """The fit itself: noise is no growth, one more each few steps is."""
    watch = Watch()
    watch.samples = {name: [] for name in watch.samples}
    for place in range(28):
        step = 300 + 25 * place
        watch.samples["step"].append(step)
        for name in BOUNDS:
            watch.samples[name].append(100 + (place % 3) * (2 if name == "MiB" else 0))
    assert not growing(watch.growth())
    for name in BOUNDS:
        watch.samples[name] = [
            value + step * BOUNDS[name] / 500
            for value, step in zip(watch.samples[name], watch.samples["step"], strict=True)
        ]
    assert growing(watch.growth()) == BOUNDS.keys()
