"""Promise: whoever looks at a bench between its rounds is told what one at its end is, of clocks and host too; arms of a
sweep that cannot be measured are results, whichever they are."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from dynotune.bench.asking.arms import Arm
from dynotune.bench.asking.asked import Asked, sweep, two
from dynotune.bench.asking.schedule import Rules
from dynotune.bench.foreign import measure as foreign
from dynotune.bench.running import measure as ours
from dynotune.bench.workers.hand import ArmFailedError
from dynotune.config.sft import SFTConfig
from dynotune.results.result import Clocks
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
    fails: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    """Arms that fail in their second block."""

    def __init__(self, arms: Any, tier: object, folder: Path, *_: object, **__: object) -> None:
        super().__init__(arms=arms, folder=folder, warm={}, device={"type": "cpu"}, processes=set(), held={})

    def warm_up(self, name: str) -> None:
        if name in self.fails:
            raise ArmFailedError(f"CUDA out of memory in {name}", "memory", Path("log"))
        stood = {"examples_a_step": 4, "steps_an_epoch": 100, "packs": False}
        self.warm[name] = SimpleNamespace(stood=stood, tokens_a_step=100.0, step_seconds=0.02, compile_seconds=0.0)

    def block(self, name: str, first: int, steps: int) -> dict[str, Any]:
        if name in self.late and self.__dict__.setdefault("once", set()) & {name}:
            raise ArmFailedError(f"CUDA out of memory in {name}", "memory", Path("log"))
        self.__dict__.setdefault("once", set()).add(name)
        counts = dict.fromkeys(
            ("examples", "documents", "real_tokens", "label_tokens", "processed_tokens", "sequence_tokens"), 20
        )
        device = 1 / 1.1 if name == "b" else 1.0
        rest = {
            "available_flops_a_second": None,
            "moved": {},
            "moved_within": {},
            "step_seconds": (),
            "flops": None,
            "loss": 1.0,
        }
        return {**counts, **rest, "seconds": 1.0, "device_seconds": device, "when": (0.0, 1.0)}

    def told(self, spans: object, products: bool) -> tuple[dict[str, Any], None]:
        return {}, None

    def fail(self, name: str) -> None:
        assert name in (*self.fails, *self.late)
        self.warm.pop(name, None)

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


def test_blocks_of_short_steps_have_more_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "Cast", Cast)
    monkeypatch.setattr(ours, "Guard", Blind)
    arms, pairings = two(Arm("a", SFTConfig(use_cpu=True)), Arm("b", SFTConfig(use_cpu=True)))
    asked = Asked("ab", arms, pairings, Rules(pairs=2, most_pairs=2), 5, 0, tmp_path, "dynotune bench", memory=False)
    for seconds, steps in ((0.0, 5), (0.5, 25)):
        found = ours.measure(replace(asked, seconds_a_block=seconds), tmp_path, lambda _: None, {})
        assert found.asked.steps_a_block == steps
        assert {block.steps for block in found.blocks} == {steps}


def test_notes_come_with_the_rounds_of_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "Guard", Blind)
    told = {"seconds": 0.001}  # however busy the host is, none of them stood still
    asked = commands.asked_of(commands.arm("a", more=told), commands.arm("b", more=told))
    seen: list[tuple[int, list[str]]] = []
    found = foreign.measure(
        asked, commands.DEVICE, tmp_path, lambda _: None, lambda found, done: seen.append((done, found.notes))
    )
    assert seen == [(1, [BLIND])]
    assert found.notes == [BLIND]


NAMES = ["micro_batch_tokens: 512", "micro_batch_tokens: 256", "micro_batch_tokens: 128"]


def swept(folder: Path, monkeypatch: pytest.MonkeyPatch, *fails: str, kind: Any = "sweep") -> ours.Measured:
    monkeypatch.setattr(ours, "Cast", Cast)
    monkeypatch.setattr(ours, "Guard", Blind)
    monkeypatch.setattr(Cast, "fails", fails)
    arms, pairings = sweep(SFTConfig(use_cpu=True), "micro_batch_tokens", [512, 256, 128])
    asked = Asked(kind, arms, pairings, Rules(pairs=2, most_pairs=2), 5, 0, folder, "dynotune bench", memory=False)
    return ours.measure(asked, folder, lambda _: None, {})


def test_a_sweep_whose_first_arm_runs_out_of_memory_is_held_against_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = swept(tmp_path, monkeypatch, NAMES[0])
    assert found.failed == {NAMES[0]: f"out of memory: CUDA out of memory in {NAMES[0]}"}
    assert [*found.names] == [NAMES[1], NAMES[2], NAMES[0]] == [arm.name for arm in found.asked.arms]
    assert {(one.arm, one.against) for one in found.asked.pairings} == {(NAMES[2], NAMES[1]), (NAMES[0], NAMES[1])}
    assert len(found.log_ratios(NAMES[2], NAMES[1])) == 2
    assert len(found.noise) == 2
    assert f"{NAMES[0]} could not be measured: the other arms are held against {NAMES[1]}." in found.notes


def test_so_is_one_whose_first_arm_runs_out_of_memory_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: of a ladder the bench ends there."""
    monkeypatch.setattr(Cast, "late", NAMES[:1])
    found = swept(tmp_path, monkeypatch)
    assert found.failed == {NAMES[0]: f"out of memory: CUDA out of memory in {NAMES[0]}"}
    assert [*found.names] == [NAMES[1], NAMES[2], NAMES[0]]
    assert [arm.name for arm in found.cast.arms] == NAMES[1:]
    assert len(found.log_ratios(NAMES[2], NAMES[1])) == 2
    assert f"{NAMES[0]} could not be measured: the other arms are held against {NAMES[1]}." in found.notes
    with pytest.raises(ArmFailedError, match=r"micro_batch_tokens: 512: .*out of memory"):
        swept(tmp_path, monkeypatch, kind="ladder")


def test_any_other_arm_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = swept(tmp_path, monkeypatch, NAMES[1])
    assert [*found.names] == NAMES
    assert [*found.failed] == [NAMES[1]]
    assert len(found.log_ratios(NAMES[2], NAMES[0])) == 2


def test_who_asks_how_a_change_stands_to_its_baseline_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Controls: of a ladder the first arm is what the others are changes of, and a sweep needs one arm that runs."""
    with pytest.raises(ArmFailedError, match=r"micro_batch_tokens: 512: .*out of memory"):
        swept(tmp_path, monkeypatch, NAMES[0], kind="ladder")
    with pytest.raises(ArmFailedError, match="no other arm could be measured either"):
        swept(tmp_path, monkeypatch, *NAMES)
