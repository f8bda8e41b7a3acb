"""Promise: whoever looks at a bench between its rounds is told what one at its end is, of clocks and host too."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from dynotune.bench.asking.arms import Arm
from dynotune.bench.asking.asked import Asked, two
from dynotune.bench.asking.schedule import Rules
from dynotune.bench.foreign import measure as foreign
from dynotune.bench.result import Clocks
from dynotune.bench.running import measure as ours
from dynotune.config.sft import SFTConfig
from tests.bench.foreign import arms as commands

BLIND = "Clocks, power and heat of the GPU are not known: NVML says Not Found."
HOST = "b is host-bound: its blocks take 10.0% longer than the device's work in them."


class Blind:
    """A guard that sees nothing, and says so."""

    note = BLIND
    own: set[int]

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def window(self, begin: float, end: float) -> Clocks:
        return Clocks()


class Cast(SimpleNamespace):
    """Arms without processes, of which the host decides how long `b` takes."""

    begin = 0

    def __init__(self, arms: Any, *_: object) -> None:
        super().__init__(arms=arms, warm={}, device={"type": "cpu"}, processes=set(), held={})

    def warm_up(self, name: str) -> None:
        stood = {"examples_a_step": 4, "steps_an_epoch": 100, "packs": False}
        self.warm[name] = SimpleNamespace(stood=stood, tokens_a_step=100.0)

    def block(self, name: str, first: int, steps: int) -> dict[str, Any]:
        counts = dict.fromkeys(("examples", "documents", "real_tokens", "label_tokens", "processed_tokens"), 20)
        device = 1 / 1.1 if name == "b" else 1.0
        rest = {"available_flops_a_second": None, "moved": {}, "step_seconds": (), "flops": None, "loss": 1.0}
        return {**counts, **rest, "seconds": 1.0, "device_seconds": device, "when": (0.0, 1.0)}

    def told(self, spans: object, products: bool) -> tuple[dict[str, Any], None]:
        return {}, None

    def fail(self, name: str) -> None:
        raise AssertionError(f"{name} failed")

    def close(self) -> None:
        pass


def test_notes_come_with_the_rounds_of_arms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "Cast", Cast)
    monkeypatch.setattr(ours, "Guard", Blind)
    arms, pairings = two(Arm("a", SFTConfig(use_cpu=True)), Arm("b", SFTConfig(use_cpu=True)))
    asked = Asked("ab", arms, pairings, Rules(pairs=3, most_pairs=3), 5, 0, tmp_path, "dynotune bench", memory=False)
    seen: list[tuple[int, list[str]]] = []
    found = ours.measure(asked, tmp_path, lambda _: None, {}, lambda found, done: seen.append((done, found.notes)))
    assert seen == [(1, [BLIND, HOST]), (2, [BLIND, HOST])]
    assert found.notes == [BLIND, HOST], "once, however often it was looked at"


def test_notes_come_with_the_rounds_of_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "Guard", Blind)
    asked = commands.asked_of(commands.arm("a"), commands.arm("b"))
    seen: list[tuple[int, list[str]]] = []
    found = foreign.measure(
        asked, commands.DEVICE, tmp_path, lambda _: None, lambda found, done: seen.append((done, found.notes))
    )
    assert seen == [(1, [BLIND])]
    assert found.notes == [BLIND]
