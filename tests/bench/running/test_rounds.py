"""Promise: whoever the arms are, rounds make pairs, hold A against A, repeat what is void and leave out what fails."""

import math
from pathlib import Path

import pytest

from dynotune.bench.asking.asked import Pairing
from dynotune.bench.asking.schedule import Round, Rules
from dynotune.bench.running.guard import Guard
from dynotune.bench.running.rounds import noted, play
from dynotune.bench.running.tally import Tally
from dynotune.bench.workers.hand import ArmFailedError
from dynotune.results.result import Block, Clocks


class Player:
    """Blocks of speeds that are known."""

    def __init__(self, speeds: dict[str, float]) -> None:
        self.speeds = speeds
        self.taken: list[tuple[str, int, bool]] = []
        self.dropped: list[str] = []
        self.recompiles: list[int] = []
        self.segments: dict[str, list[int]] = {}
        self.fails: dict[str, str] = {}
        self.noisy = False

    def block(self, name: str, round_: Round) -> Block:
        if name in self.fails:
            raise ArmFailedError("out of memory: it was too large", self.fails[name], Path("log"))
        self.taken.append((name, round_.number, round_.of_noise))
        slow = 1 + 0.05 * self.noisy * (len(self.taken) % 3)
        return Block(
            arm=name, pair=round_.number, first_step=1, steps=5, examples=5, documents=5, real_tokens=1000,
            label_tokens=500, processed_tokens=1000, seconds=slow * 1000 / self.speeds[name], of_noise=round_.of_noise,
            recompiles=self.recompiles.pop(0) if self.recompiles else 0,
            segments=self.segments[name].pop(0) if self.segments.get(name) else 0,
        )  # fmt: skip

    def drop(self, name: str) -> None:
        self.dropped.append(name)

    @property
    def spent(self) -> float:
        return 10.0 * len(self.taken)


def played(player: Player, rules: Rules | None = None, names: tuple[str, ...] = ("a", "b")) -> Tally:
    tally = Tally(names)
    pairings = [Pairing(name, names[0], name, "whole") for name in names[1:]]
    play(tally, player, names, pairings, rules or Rules(most_pairs=6), 0, lambda text: None)
    return tally


def test_pairs_and_noise_are_told_apart() -> None:
    tally = played(Player({"a": 100.0, "b": 125.0}))
    assert tally.log_ratios("b", "a") == {n: pytest.approx(math.log(1.25)) for n in range(6)}
    assert tally.noise == [0.0, 0.0]
    assert tally.ended == "6 pairs are the most"
    assert len(tally.blocks) == 16


def test_it_ends_where_the_interval_is_narrow() -> None:
    assert "every interval is within" in played(Player({"a": 100.0, "b": 125.0}), Rules(most_pairs=16)).ended


def test_notes_of_rounds_so_far_are_not_kept_for_those_to_come() -> None:
    """Clocks are first 10 % apart, in the end equal: then nothing is said of them."""
    guard = Guard()
    guard.note = "No clocks."
    tally = Tally(("a", "b"), apart={("b", "a"): [0.1]}, notes=["b was late."])
    so_far = noted(tally, guard)
    assert so_far.notes == ["b was late.", "No clocks.", "b runs at clocks 10.5% above those of a."]
    assert so_far.apart is tally.apart
    tally.apart["b", "a"] += [0.0, 0.0]
    assert noted(tally, guard).notes == ["b was late.", "No clocks."]


def test_a_budget_counts_devices() -> None:
    player = Player({"a": 100.0, "b": 125.0})
    player.noisy = True
    ended = played(player, Rules(pairs=2, most_pairs=6, budget_seconds=90)).ended
    assert "80 of 90 GPU seconds are spent after 2 pairs" in ended


def test_a_block_that_runs_again_by_itself_is_held_against_its_round() -> None:
    """Of clocks that another process lowered meanwhile. Control: at the clocks of its round it counts."""

    class Throttled(Player):
        mhz = 1900.0

        def block(self, name: str, round_: Round) -> Block:
            alone = self.taken.count((name, round_.number, False)) == 1 and not round_.of_noise
            made = super().block(name, round_)
            return made.model_copy(update={"clocks": Clocks(samples=5, sm_mhz=self.mhz if alone else 1900.0)})

    def repeated(mhz: float) -> Block:
        player = Throttled({"a": 100.0, "b": 125.0})
        player.recompiles, player.mhz = [1], mhz
        return played(player).blocks[2]

    assert repeated(1900.0).void is None
    assert "clocks were" in (repeated(1200.0).void or "")


def test_a_void_pair_runs_again_and_counts_once() -> None:
    player = Player({"a": 100.0, "b": 125.0})
    player.recompiles = [1]
    tally = played(player)
    assert [block.void is not None for block in tally.blocks[:3]] == [True, False, False]
    assert len(tally.log_ratios("b", "a")) == 6


def test_a_block_in_which_memory_grew_runs_again_and_then_counts() -> None:
    """By itself: the other block of its pair stands. What grows again is the arm's own. Control: a few are nothing."""
    player = Player({"a": 100.0, "b": 125.0})
    player.segments = {"b": [90, 90]}
    tally = played(player)
    first = [block for block in tally.blocks if block.pair == 0 and not block.of_noise]
    assert [(block.arm, block.void) for block in first if block.arm == "a"] == [("a", None)]
    assert [block.void for block in first if block.arm == "b"] == [
        "90 new segments of device memory in a block of b",
        None,
    ]
    assert len(tally.log_ratios("b", "a")) == 6
    few = Player({"a": 100.0, "b": 125.0})
    few.segments = {"b": [80]}  # 80 ms of 8 s
    assert all(block.void is None for block in played(few).blocks)


def test_no_block_of_such_a_round_counts_in_which_memory_grew_at_all() -> None:
    """One arm's cold block is not held against another's warm one. Control: where nothing is void, few segments stand."""
    player = Player({"a": 100.0, "b": 125.0, "c": 90.0})
    player.segments = {"a": [1], "b": [90], "c": [0]}
    tally = played(player, names=("a", "b", "c"))
    round_ = [block for block in tally.blocks if block.pair == 0 and not block.of_noise]
    assert {block.arm: block.void for block in round_[:3]} == {
        "a": "1 new segment of device memory in a block of a",
        "b": "90 new segments of device memory in a block of b",
        "c": None,
    }
    assert {block.arm for block in round_[3:]} == {"a", "b"}
    few = Player({"a": 100.0, "b": 125.0})
    few.segments = {"a": [1], "b": [2]}
    assert all(block.void is None for block in played(few).blocks)


def test_blocks_that_run_again_together_are_held_against_the_first_arm() -> None:
    """Both at clocks that something lowered meanwhile, and so like each other. Control: at the first arm's they count."""

    class Lowered(Player):
        mhz = 1400.0

        def block(self, name: str, round_: Round) -> Block:
            again = self.taken.count((name, round_.number, False)) == 1 and not round_.of_noise
            made = super().block(name, round_)
            return made.model_copy(update={"clocks": Clocks(samples=5, sm_mhz=self.mhz if again else 1900.0)})

    def voids(mhz: float) -> tuple[list[str | None], Tally]:
        player = Lowered({"a": 100.0, "b": 125.0, "c": 90.0})
        player.segments, player.mhz = {"b": [90], "c": [90]}, mhz
        tally = played(player, names=("a", "b", "c"))
        return [block.void for block in tally.blocks if block.pair == 0 and not block.of_noise][3:], tally

    low, tally = voids(1400.0)
    assert all(void is not None and "clocks were" in void for void in low)
    assert len(low) == 2
    assert not {("b", "c"), ("c", "b")} & tally.apart.keys()
    assert voids(1900.0)[0] == [None, None]


def test_noise_is_that_of_blocks_whose_memory_did_not_grow() -> None:
    player = Player({"a": 100.0, "b": 125.0})
    player.segments = {"a": [0] * 2 + [200]}
    tally = played(player)
    assert sum(block.void is not None for block in tally.blocks) == 1
    assert len(tally.noise) == 2


def test_a_void_block_of_noise_takes_no_pair_of_it_away() -> None:
    """Control: the void block itself is not in the pair."""

    class Late(Player):
        def block(self, name: str, round_: Round) -> Block:
            void = round_.of_noise and not any(noise for *_, noise in self.taken)
            return (
                super().block(name, round_).model_copy(update={"recompiles": int(void), "first_step": len(self.taken)})
            )

    tally = played(Late({"a": 100.0, "b": 125.0}))
    assert sum(block.void is not None for block in tally.blocks) == 1
    assert len(tally.noise) == 2
    assert [block.void for pair in tally.noise_pairs for block in pair] == [None] * 4


def test_an_arm_that_fails_is_a_result_and_the_first_one_ends_the_bench() -> None:
    player = Player({"a": 100.0, "b": 125.0, "c": 90.0})
    player.fails = {"c": "memory"}
    tally = played(player, names=("a", "b", "c"))
    assert tally.failed == {"c": "out of memory: it was too large"}
    assert player.dropped == ["c"]
    assert len(tally.log_ratios("b", "a")) == 6
    player.fails = {"a": "memory"}
    with pytest.raises(ArmFailedError, match="a: out of memory"):
        played(player)


def test_a_defect_is_not_taken_for_a_result() -> None:
    player = Player({"a": 100.0, "b": 125.0})
    player.fails = {"b": "bug"}
    with pytest.raises(ArmFailedError):
        played(player)


def test_the_budget_sees_what_rounds_spend_whatever_devices_their_arms_have() -> None:
    """Arms of one device each cost half of what the same seconds on two do: the budget lasts for more pairs."""

    class Cheap(Player):
        @property
        def spent(self) -> float:
            return 5.0 * len(self.taken)

    def pairs(player: Player) -> int:
        player.noisy = True
        return len(played(player, Rules(pairs=2, most_pairs=16, budget_seconds=120)).log_ratios("b", "a"))

    speeds = {"a": 100.0, "b": 125.0}
    assert (pairs(Player(speeds)), pairs(Cheap(speeds))) == (4, 10)


class Slow(Player):
    """A ladder whose lowest rung takes ten times as long. `apart`: by which rounds of the others differ, in turn."""

    def __init__(self, apart: float) -> None:
        super().__init__({"plain": 10.0, "packed": 100.0, "fused": 110.0})
        self.apart, self.seconds = apart, 0.0

    def block(self, name: str, round_: Round) -> Block:
        self.seconds += 10.0 if name == "plain" else 1.0
        made = super().block(name, round_)
        off = self.apart * (round_.number % 3 - 1) if name == "fused" else 0.0
        return made.model_copy(update={"seconds": made.seconds * (1 + off)})

    @property
    def spent(self) -> float:
        return self.seconds


STEPS = [Pairing("packed", "plain", "packed", "step"), Pairing("fused", "packed", "fused", "step")]


def climbed(player: Slow, rules: Rules) -> Tally:
    tally = Tally(("plain", "packed", "fused"))
    play(tally, player, tally.names, STEPS, rules, 0, lambda text: None, ladder=True)
    return tally


def test_an_arm_rests_whose_comparisons_are_all_narrow_enough() -> None:
    """Its neighbour goes on for the other one's sake. Control: where nothing is narrow, all go on."""
    tally = climbed(Slow(apart=0.05), Rules(pairs=4, most_pairs=10))
    assert [len(tally.counted(name)) for name in tally.names] == [4, 10, 10]
    assert len(tally.log_ratios("packed", "plain")) == 4
    loud = Rules(pairs=4, most_pairs=10, resolution=1e-9)
    slow = Slow(apart=0.05)
    slow.noisy = True
    assert [len(climbed(slow, loud).counted(name)) for name in tally.names] == [10, 10, 10]


def test_what_is_left_of_a_budget_goes_to_who_needs_it() -> None:
    """Four rounds of 12 s and two of noise of 20 s are 88; from there on two rounds take 4 s, not 24."""
    tally = climbed(Slow(apart=0.05), Rules(pairs=4, most_pairs=16, budget_seconds=100))
    assert len(tally.counted("fused")) == 10
    assert "100 of 100 GPU seconds are spent after 10 pairs, and two more pairs would need about 4" in tally.ended


def test_a_budget_foresees_rounds_of_noise() -> None:
    """Behind two rounds of 12 s, two more need 24 s and 20 of noise before them: 70 s are not enough, 68 being needed."""
    rules = Rules(pairs=6, most_pairs=6, budget_seconds=67)
    assert climbed(Slow(apart=0.05), rules).ended.endswith("two more pairs would need about 44")
    assert len(climbed(Slow(apart=0.05), Rules(pairs=6, most_pairs=6, budget_seconds=68)).counted("fused")) == 4


def test_where_the_first_arm_of_a_sweep_fails_late_the_others_are_held_against_the_next() -> None:
    """Also with the rounds that were run before. Control: of any other bench it is the end."""

    class Late(Player):
        def block(self, name: str, round_: Round) -> Block:
            if name == "a" and round_.number == 2:
                self.fails["a"] = "memory"
            return super().block(name, round_)

    def sweep(*, may: bool) -> Tally:
        tally = Tally(("a", "b", "c"))

        def led_anew() -> list[Pairing]:
            tally.names = ["b", "c", "a"]
            return [Pairing(name, "b", name, "whole") for name in ("c", "a")]

        pairings = [Pairing(name, "a", name, "whole") for name in ("b", "c")]
        player = Late({"a": 100.0, "b": 125.0, "c": 150.0})
        rules = Rules(pairs=4, most_pairs=4)
        anew = led_anew if may else None
        play(tally, player, ("a", "b", "c"), pairings, rules, 0, lambda text: None, led_anew=anew)
        return tally

    tally = sweep(may=True)
    assert tally.failed["a"].startswith("out of memory")
    assert tally.log_ratios("c", "b") == {n: pytest.approx(math.log(1.2)) for n in range(4)}
    assert {block.arm for block in tally.blocks if block.of_noise} <= {"a", "b"}
    with pytest.raises(ArmFailedError, match="out of memory"):
        sweep(may=False)
