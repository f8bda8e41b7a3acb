"""Promise: a budget ends a bench before whatever would begin behind it, wherever that is; the bench then says what spent it,
claims nothing that it has not measured, and has the exit code of a bench without an answer."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from dynotune.bench import command
from dynotune.bench.asking.arms import Arm
from dynotune.bench.asking.asked import Asked, Pairing, sweep, two
from dynotune.bench.asking.schedule import Rules, stop, unit_of
from dynotune.bench.foreign import measure as foreign
from dynotune.bench.foreign.conclude import conclude as of_commands
from dynotune.bench.foreign.protocol import Told
from dynotune.bench.judging.conclude import conclude
from dynotune.bench.judging.expect import parse
from dynotune.bench.keeping.between import Outcome, gate, said_beside
from dynotune.bench.parity.gate import check
from dynotune.bench.running import measure as ours
from dynotune.bench.running.budget import spent_by
from dynotune.bench.showing.markdown import markdown
from dynotune.bench.showing.page import bench_page
from dynotune.bench.showing.terminal import LINES, screen
from dynotune.cli_measure import NOT_MET, exit_code
from dynotune.config.sft import SFTConfig
from dynotune.results.result import Parity, Result, Tier, Verdict
from tests.bench import made
from tests.bench.foreign import arms as commands
from tests.bench.running.test_measure import Blind
from tests.bench.running.test_measure import Cast as Steady
from tests.bench.running.test_rounds import Player, played

MACHINE = {"machine": {"device": "a CPU"}, "type": "cpu"}


class Cast(Steady):
    """An arm takes ten seconds to be warm, a block of it one."""

    warmed: list[str]
    blocks = 0

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        self.warmed, self.device, self.said = [], {}, ()
        self.proofs = self.switches = self.spent = {}

    def warm_up(self, name: str) -> None:
        super().warm_up(name)
        self.device = MACHINE
        self.warmed.append(name)
        self.held[name] = self.held.get(name, 0.0) + 10.0
        warm = self.warm[name]
        warm.stood |= {"said": (), "model": {}, "work": "sft", "precision": "float32", "installed": []}
        warm.__dict__.update(
            steps=10, seconds=9.0, first_step_seconds=1.0, set_up_seconds=1.0, compile_seconds=0.0, trace_seconds=0.0,
            events=(), stationary=True, note="", unwanted=(), loss=2.5,
        )  # fmt: skip

    def block(self, name: str, first: int, steps: int) -> dict[str, Any]:
        self.blocks += 1
        self.held[name] += 1.0
        return super().block(name, first, steps)


@pytest.fixture(autouse=True)
def without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "Cast", Cast)
    monkeypatch.setattr(ours, "Guard", Blind)
    monkeypatch.setattr(ours.machine, "ask", lambda **_: MACHINE)


def asked_of(folder: Path, budget: float | None, **more: Any) -> Asked:
    config = SFTConfig(model_name_or_path="m", dataset_name="d.jsonl", use_cpu=True)
    arms, pairings = two(Arm("a", config), Arm("b", config.replace(packed_execution="off")))
    rules = Rules(pairs=2, most_pairs=2, budget_seconds=budget)
    return Asked("ab", arms, pairings, rules, 5, 0, folder, "dynotune bench", memory=False, **more)


def measured(folder: Path, budget: float | None, gated: dict[str, float] | None = None) -> Any:
    return ours.measure(asked_of(folder, budget), folder, lambda _: None, gated or {})


def concluded(found: Any, parity: tuple[Parity, ...] = ()) -> Result:
    result = conclude(found, parity, parse("speed>=1.1"), machine=found.device["machine"], commit=None)
    return Result.model_validate_json(result.model_dump_json())


@pytest.mark.parametrize(
    ("budget", "gated", "warmed", "said"),
    [
        (30.0, {"b": 31.0}, [], "was spent by the parity gate (31 s) before a was warm"),
        (30.0, {"b": 25.0}, ["a"], "was spent by the parity gate (25 s) and warm-up (10 s) before b was warm"),
        (20.0, {}, ["a", "b"], "was spent by warm-up (20 s) before the first pair"),
    ],
    ids=["by the gate", "by the gate and an arm", "by warming up"],
)
def test_it_ends_before_what_would_begin_next(
    budget: float, gated: dict[str, float], warmed: list[str], said: str, tmp_path: Path
) -> None:
    """Control: with room for all of it, blocks are measured, and nothing is unfinished."""
    found = measured(tmp_path, budget, gated)
    assert (found.cast.warmed, found.cast.blocks) == (warmed, 0)
    assert found.unfinished == f"the budget of {budget:g} GPU seconds {said}"
    assert found.device == MACHINE
    enough = measured(tmp_path, 100.0, gated)
    assert (enough.cast.warmed, enough.unfinished) == (["a", "b"], "")
    assert enough.cast.blocks
    assert measured(tmp_path, None, gated).unfinished == ""


@pytest.mark.parametrize("gated", [31.0, 25.0, 10.0], ids=["no arm warm", "one arm warm", "both warm"])
def test_such_a_result_claims_nothing_anywhere_and_is_no_answer(gated: float, tmp_path: Path) -> None:
    """Control: of a bench with room the same words stand nowhere."""
    result = concluded(measured(tmp_path, 30.0, {"b": gated}))
    [one] = result.comparisons
    assert (one.verdict, one.why, one.ratio) == (Verdict.UNRESOLVED, result.unfinished, None)
    assert all(not arm.blocks and arm.failed is None for arm in result.arms)
    assert exit_code(result.model_copy(update={"expectations": ()})) == NOT_MET
    assert result.expectations[0].met is None
    for width in (80, 140):
        lines = [line.plain for line in screen(result, width)]
        assert len(lines) <= LINES
        assert "the budget of 30 GPU seconds was spent by the parity gate" in " ".join(lines)
    for text in (markdown(result), bench_page(result), result.sentence):
        assert "the budget of 30 GPU seconds was spent by the parity gate" in text
    assert "nothing is claimed" in result.sentence
    enough = concluded(measured(tmp_path, 100.0, {"b": gated}))
    assert "was spent by" not in markdown(enough)
    assert exit_code(enough.model_copy(update={"expectations": ()})) == 0


def test_a_sweep_that_a_budget_ends_is_no_answer_either() -> None:
    why = "the budget of 9 GPU seconds was spent by warm-up (9 s) before the first pair"
    unfinished = made.sweep(unfinished=why)
    assert exit_code(unfinished) == NOT_MET
    assert exit_code(made.sweep()) == 0


def test_a_first_pair_without_room_for_a_second_is_no_comparison() -> None:
    """Control: two pairs that end for the budget are, and say so as before."""
    player = Player({"a": 100.0, "b": 125.0})
    player.noisy = True
    short = played(player, Rules(pairs=2, most_pairs=6, budget_seconds=30))
    assert short.unfinished.startswith("the budget has no room for a second pair: 20 of 30 GPU seconds are spent")
    player = Player({"a": 100.0, "b": 125.0})
    player.noisy = True
    assert played(player, Rules(pairs=2, most_pairs=6, budget_seconds=90)).unfinished == ""


def test_no_probe_of_memory_begins_behind_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is asked for: the first one's seconds count for the second. Control: without a budget both are measured."""
    now = [0.0]

    class Hand:
        def __init__(self, arm: Arm, *_: Any) -> None:
            now[0] += 8.0

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: Any) -> None:
            pass

        def stand(self, arm: Arm) -> None:
            pass

        def do(self, what: str) -> dict[str, Any]:
            return {"tokens": 100, "allocated": 1000}

    monkeypatch.setattr(ours, "Hand", Hand)
    monkeypatch.setattr(ours.time, "perf_counter", lambda: now[0])

    def probed(budget: float | None, gated: dict[str, float]) -> tuple[list[str], list[str], float]:
        asked = asked_of(tmp_path, budget)
        memory, failed, notes, seconds = ours._memory(asked, tmp_path, {}, lambda _: None, gated)
        assert not failed
        return [*memory], notes, sum(seconds.values())

    assert probed(20.0, {"b": 12.0}) == (
        ["a"],
        [
            "The peak memory of b is not known: the budget of 20 GPU seconds was spent by the parity gate (12 s) and"
            " peak memory (8.0 s) before it was measured."
        ],
        8.0,
    )
    assert probed(10.0, {"b": 12.0})[:2] == (
        [],
        [
            "The peak memory of a and b is not known: the budget of 10 GPU seconds was spent by the parity gate (12 s)"
            " before it was measured."
        ],
    )
    assert probed(None, {"b": 12.0}) == (["a", "b"], [], 16.0)


def test_no_gate_begins_behind_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one takes all of it, on two devices. Control: on one there is room for the second."""
    now, told = [0.0], list[str]()

    def check(first: Arm, other: Arm, *_: Any, spent: str, **__: Any) -> Parity:
        told.append(spent)
        now[0] += 0.0 if spent else 6.0
        return Parity(arm=other.name, against=first.name, kind="exact", state="same")

    monkeypatch.setattr("dynotune.bench.parity.gate.check", check)
    monkeypatch.setattr(command.time, "perf_counter", lambda: now[0])
    for gpus, spent in (
        (2, "the budget of 10 GPU seconds was spent by the parity gate (12 s) before c was checked"),
        (1, ""),
    ):
        told.clear()
        config = SFTConfig(model_name_or_path="m", dataset_name="d.jsonl", use_cpu=True, gpus=gpus)
        arms = {name: Arm(name, config) for name in "abc"}
        pairings = [Pairing(name, "a", name, "whole") for name in "bc"]
        folder = tmp_path / str(gpus)
        folder.mkdir()
        asked: Any = SimpleNamespace(
            parity="gate", rules=Rules(budget_seconds=10.0), pairings=pairings, arm=arms.__getitem__
        )
        command._parity(asked, folder, lambda _: None)
        assert told == ["", spent]


@pytest.mark.parametrize(
    ("settings", "state"),
    [
        ({"packed_execution": "off"}, "not checked"),
        ({"bf16": True}, "not checked"),
        ({"learning_rate": 1e-3, "test_split_size": 0.1}, "behavioural"),
        ({"run_name": "another"}, "same"),
    ],
    ids=["exact", "numeric", "behavioural", "unchanged"],
)
def test_what_was_not_checked_says_so_and_asks_nobody(settings: dict[str, Any], state: str, tmp_path: Path) -> None:
    """What needs no process is known all the same."""
    why = "the budget of 10 GPU seconds was spent by the parity gate (12 s) before b was checked"
    config = SFTConfig(model_name_or_path="m", dataset_name="d.jsonl", use_cpu=True, test_split_size=0.1)
    a, b = Arm("a", config), Arm("b", config.replace(**settings))
    found = check(a, b, tmp_path, spent=why, say=lambda _: None, ask=lambda *_: pytest.fail("it was asked"))
    assert found.state == state
    assert found.why_not_checked == ("" if state == "same" else why)


def test_an_exact_arm_whose_gate_found_no_budget_is_not_comparable(tmp_path: Path) -> None:
    """Though a pair of it were measured: that both make the same updates was not checked. Control: where it was, it is."""
    why = "the budget of 30 GPU seconds was spent by the parity gate (31 s) before b was checked"
    unchecked = Parity(arm="b", against="a", kind="exact", state="not checked", why_not_checked=why)
    found = measured(tmp_path, 100.0)
    [one] = concluded(found, (unchecked,)).comparisons
    assert one.verdict is Verdict.NOT_COMPARABLE
    assert why in one.why
    [one] = concluded(found, (made.same("b", "a"),)).comparisons
    assert one.verdict is not Verdict.NOT_COMPARABLE


def test_commands_are_asked_too(tmp_path: Path) -> None:
    """Each has a run before the rounds, of which the first takes all that there is. Control: without a budget."""
    arms = commands.arm("a"), commands.arm("b")

    def benched(budget: float | None) -> Result:
        asked = commands.asked_of(*arms)
        folder = tmp_path / str(budget)
        folder.mkdir()
        asked = replace(asked, rules=replace(asked.rules, budget_seconds=budget))
        found = foreign.measure(asked, commands.DEVICE, folder, lambda _: None)
        return of_commands(found, (), machine={"device": "a CPU"}, commit=None)

    ended = benched(1e-6)
    assert "was spent by the first runs, which do not count," in ended.unfinished
    assert ended.unfinished.endswith("before b ran")
    assert not any(arm.blocks for arm in ended.arms)
    assert ended.sentence == f"UNFINISHED: {ended.unfinished}. Nothing was compared, and nothing is claimed."
    assert exit_code(ended) == NOT_MET
    assert benched(None).unfinished == ""


@pytest.mark.parametrize(("budget", "devices", "ends"), [(60.0, 2, True), (60.0, 1, False), (100.0, 2, False)])
def test_a_first_pair_of_commands_that_cannot_fit_does_not_begin(
    budget: float, devices: int, ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each took ten seconds on its devices before. Controls: on half of these, and with room for it, it begins."""

    def run(self: foreign.Player, name: str, first: bool = False) -> Any:
        self.found.held[name] = self.found.held.get(name, 0.0) + 10.0
        self.found.devices_of[name] = devices
        return Told(tokens=1000, seconds=5.0, devices=devices), 10.0, (0.0, 1.0), set()

    monkeypatch.setattr(foreign.Player, "run", run)
    monkeypatch.setattr(foreign, "Guard", Blind)
    asked = commands.asked_of(commands.arm("a"), commands.arm("b"))
    asked = replace(asked, rules=replace(asked.rules, budget_seconds=budget))
    found = foreign.measure(asked, commands.DEVICE, tmp_path, lambda _: None)
    why = "the budget of 60 GPU seconds has no room for the first pair, which would need about 40: 40 were spent by"
    assert found.unfinished.startswith(why) is ends
    assert bool(found.blocks) is not ends


def test_rounds_that_do_not_count_are_no_pairs() -> None:
    """A block of the first round is void each time: of two rounds one pair counts, and nothing is compared. Controls: where
    the second block counts there are two pairs; where no budget ended it, the rounds were all that was asked for."""

    def ended(voids: int, **rules: Any) -> Any:
        player = Player({"a": 100.0, "b": 125.0})
        player.noisy, player.recompiles = True, [1, 0, 1][: 2 * voids - 1]
        return played(player, Rules(**{"pairs": 2, "most_pairs": 6, "noise_pairs": 0, "budget_seconds": 60, **rules}))

    short = ended(2)
    assert len(short.log_ratios("b", "a")) == 1
    assert short.unfinished.startswith(
        "of 2 pairs 1 counts (1 recompilation in a block of a), and the budget has no room for more: "
    )
    assert "after 2 pairs, and two more pairs would need" in short.unfinished
    assert ended(1).unfinished == ""
    assert ended(1).by_budget
    assert ended(2, most_pairs=2, budget_seconds=None).unfinished == ""


def test_no_gate_in_ci_lets_it_pass() -> None:
    """Control: of two that came to their end it judges the speed."""
    short = made.ab(unfinished="the budget of 9 GPU seconds was spent by warm-up (9.0 s) before the first pair")
    for old, new in ((made.ab(), short), (short, made.ab())):
        assert [one.outcome for one in gate(old, new, 0.03)] == [Outcome.NOT_COMPARABLE]
        assert any("is UNFINISHED: the budget of 9" in line for line in said_beside([old, new]))
    assert {one.outcome for one in gate(made.ab(), made.ab(), 0.03)} == {Outcome.FINE}


def test_a_sweep_whose_first_arm_fails_and_spends_it_ends_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody leads: what is left to be said is that memory ran out, and the budget."""
    arms, pairings = sweep(SFTConfig(use_cpu=True), "micro_batch_tokens", [512, 256])

    def warm_up(self: Cast, name: str) -> None:
        self.held[name] = 40.0
        self.device = MACHINE
        Steady.warm_up(self, name)

    monkeypatch.setattr(Cast, "warm_up", warm_up)
    monkeypatch.setattr(Cast, "fails", (arms[0].name,))
    asked = Asked("sweep", arms, pairings, Rules(budget_seconds=30), 5, 0, tmp_path, "dynotune bench", memory=False)
    found = ours.measure(asked, tmp_path, lambda _: None, {})
    result = concluded(found)
    assert result.arms[0].failure == "out of memory"
    assert f"{arms[1].name} was warm" in result.unfinished
    assert exit_code(result.model_copy(update={"expectations": ()})) == NOT_MET


@pytest.mark.parametrize(
    ("tier", "compiled", "ends"),
    [(Tier.FRESH, 0.0, True), (Tier.FRESH, 9.0, False), (Tier.RESIDENT, 0.0, False)],
)
def test_a_first_pair_that_cannot_fit_does_not_begin(
    tier: Tier, compiled: float, ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each block has a process of its own, it warms up in each: two that took 20 s in all, of a budget of 30.
    Controls: what was compiled is found, and processes that stay are warm."""
    monkeypatch.setattr(ours, "tier_for", lambda *_: (tier, "it was asked for"))
    warm_up = Cast.warm_up

    def compiling(self: Cast, name: str) -> None:
        warm_up(self, name)
        self.warm[name].compile_seconds = compiled

    monkeypatch.setattr(Cast, "warm_up", compiling)
    found = measured(tmp_path, 30.0)
    why = "the budget of 30 GPU seconds has no room for the first pair, which would need about 20: 20 were spent by warm-up"
    assert found.unfinished == (f"{why} (20 s)" if ends else "")
    assert bool(found.cast.blocks) is not ends


def test_where_no_other_arm_runs_no_pair_was_to_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is memory that ended it, and not the budget."""
    monkeypatch.setattr(Cast, "fails", ("b",))
    found = measured(tmp_path, 10.5)
    assert found.unfinished == ""
    assert [*found.failed] == ["b"]
    monkeypatch.setattr(Cast, "fails", ())
    assert measured(tmp_path, 20.0).unfinished


def test_what_spent_it_is_named_in_order() -> None:
    rules = Rules(budget_seconds=10)
    assert spent_by(rules, {"one": 4.0, "two": 5.9}, "it") == ""
    assert spent_by(rules, {"one": 4.04, "two": 0.0, "three": 12.0}, "it") == (
        "the budget of 10 GPU seconds was spent by one (4.0 s) and three (12 s) before it"
    )
    assert spent_by(Rules(), {"one": 1e9}, "it") == ""


@pytest.mark.parametrize("gpu", [True, False])
def test_a_budget_is_of_gpu_seconds_where_there_is_a_gpu(gpu: bool, tmp_path: Path) -> None:
    """Wherever it is said that it is spent. Commands ask their machine, configurations say what they run on."""
    config, unit = SFTConfig(model_name_or_path="m", dataset_name="d.jsonl", use_cpu=True), unit_of(gpu)
    options = command.Options(config, "a", budget=10.0)
    rules = command._rules(options, fresh=False, gpu=gpu)
    for said in (
        spent_by(rules, {"one": 12.0}, "it"),
        spent_by(rules, {"one": 6.0}, "it", needs=9.0),
        stop([False], 6, rules, spent=9.0, seconds_of_more=9.0),
    ):
        assert f"10 {unit} " in said
        assert ("GPU" in said) is gpu
    assert command._asked(replace(options, changes=["seed=3"]), tmp_path, tmp_path, print).rules.unit == "seconds"
