"""In which order the blocks of a bench run, when it stops, and which blocks run again.

A *round* runs one block of every arm on the same documents; the blocks of two arms in a round are a pair. Orders are the
rows of a Williams square (E. J. Williams, 1949), in which each arm stands in each place and follows each other arm equally
often, taken so that every second round is the one before it turned round: for two arms ABBA. Drift that is even over two
rounds then favours nobody, however few rounds run.

Nothing here looks at which arm is ahead. Stopping as soon as a difference is "significant" calls one in every fifth bench
of equal arms; stopping on the width of the interval does not (`statistics.LOOKS`).
"""

import math
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from dynotune.errors import ConfigError

STEPS_A_BLOCK = 5
"""Many short blocks tell more than a few long ones: each pair is a moment of its own, and drift within it is small."""

SECONDS_A_BLOCK = 0.5
"""That a block takes at least. In ABBA the blocks in the middle are neighbours, and so are those of two such rounds: what
neighbours have in common turns pairs the same way, and their mean spreads more than they say. A step of an H200 has much in
common with those up to 0.1 s away (correlation 0.7 with the next, 0.3 with the fifth, 0.1 with the twelfth, of 19 ms each):
of blocks of five such steps 8 intervals in a hundred miss, of blocks of half a second 5."""

NOISE_RESERVE = 0.05
"""Of a budget: what pairs of the first arm against itself may take beyond it that were owed when it ended the rounds.
Without them no difference is called one, and all that was spent before says nothing."""

TIMES = 2
"""How often a block is measured before what voids it is a finding."""


def unit_of(gpu: bool) -> str:
    """What seconds of a budget are called. gpu: they are of one."""
    return "GPU seconds" if gpu else "seconds"


@dataclass(frozen=True, slots=True)
class Rules:
    """Of one bench. Raises `ConfigError` for what cannot be scheduled."""

    pairs: int = 6
    """Before which it does not stop for precision."""

    most_pairs: int = 16
    resolution: float = 0.005
    """Half the width of the interval that is asked for, in ln, so that 0.005 is half a per cent."""

    noise_pairs: int = 2
    """Of the first arm against itself."""

    budget_seconds: float | None = None
    """Of devices: wall seconds times devices."""

    unit: str = unit_of(gpu=True)
    """What these are called."""

    def __post_init__(self) -> None:
        if not 2 <= self.pairs <= self.most_pairs:
            raise ConfigError(
                f"A bench of {self.pairs} to {self.most_pairs} pairs cannot be: give at least 2, and no more than the cap."
            )
        if not 0 < self.resolution < math.inf:
            raise ConfigError(f"A resolution of {self.resolution} is none: give a share above 0, such as 0.005.")
        if self.noise_pairs < 0:
            raise ConfigError("The number of pairs of A against A cannot be below 0.")
        if self.budget_seconds is not None and not 0 < self.budget_seconds < math.inf:
            raise ConfigError(
                f"A budget of {self.budget_seconds:g} seconds is none: give GPU seconds above 0, or leave `--budget` out."
            )


@dataclass(frozen=True, slots=True)
class Round:
    """Blocks that run one after the other, each on the same documents."""

    number: int
    """From 0; rounds of noise are numbered apart."""

    arms: tuple[str, ...]
    of_noise: bool = False


def orders(arms: Sequence[str], seed: int) -> Iterator[tuple[str, ...]]:
    """Orders of rounds without end. The seed decides which arm is which letter of the square, and so which goes first."""
    names = list(arms)
    assert len(set(names)) == len(names) >= 2, names
    random.Random(seed).shuffle(names)  # noqa: S311 - no secret
    square = [tuple(names[letter] for letter in row) for row in williams(len(names))]
    while True:
        yield from square


def along(arms: Sequence[str], seed: int) -> Iterator[tuple[str, ...]]:
    """Orders of rounds of a ladder, without end: up, down, up. Each rung's block then stands beside those of its neighbours,
    with which it is compared, ABBA, and not up to a round away. The seed decides whether it goes up first."""
    up = tuple(arms)
    first, second = (up, up[::-1]) if random.Random(seed).random() < 0.5 else (up[::-1], up)  # noqa: S311 - no secret
    while True:
        yield first
        yield second


def williams(letters: int) -> list[tuple[int, ...]]:
    """Rows of a Williams square of 0 .. letters - 1: as many rows as letters where these are even, twice as many else.

    Rows come in pairs, the second one being the first turned round.
    """
    zigzag = [0] + [(i + 1) // 2 if i % 2 else letters - i // 2 for i in range(1, letters)]
    # Of an even number, the row shifted by half is the first turned round; of an odd one, no row is.
    first = range(letters // 2 if letters % 2 == 0 else letters)
    rows = [tuple((letter + shift) % letters for letter in zigzag) for shift in first]
    return [turned for row in rows for turned in (row, row[::-1])]


def rounds(arms: Sequence[str], seed: int, rules: Rules, *, ladder: bool = False) -> Iterator[Round]:
    """All rounds up to the cap, those of noise woven in; whoever runs them asks `stop` after each.

    ladder: the arms are its rungs, compared with their neighbours. The first arm is the baseline. Its pairs against itself
    run between two rounds and the two that turn them round, so that nothing comes between these, and before the last of the
    first `rules.pairs` rounds, behind which a bench may stop.
    """
    noise: dict[int, list[Round]] = {}
    for n, after in enumerate(_noise_after(rules)):
        noise.setdefault(after, []).append(Round(n, (arms[0], arms[0]), of_noise=True))
    walked = (along if ladder else orders)(arms, seed)
    for number, order in zip(range(rules.most_pairs), walked, strict=False):
        yield Round(number, order)
        yield from noise.pop(number + 1, ())


def is_settled(half_width: float, done: int, rules: Rules) -> bool:
    """Whether a comparison needs no further blocks behind `done` rounds: by half the width of its interval alone, and never
    between the two orders."""
    return done % 2 == 0 and done >= rules.pairs and half_width <= rules.resolution


def stop(
    settled: Collection[bool], done: int, rules: Rules, *, spent: float = 0.0, seconds_of_more: float = 0.0
) -> str:
    """Why the bench ends behind `done` rounds, as the end of a sentence; empty where it goes on.

    settled: of every comparison that is asked for; empty where none is known. spent: GPU seconds so far. seconds_of_more:
    that the rounds up to the next look will take, `rounds_to_come` of them. Pairs are looked at in twos: an odd number
    leaves one order ahead of the other.
    """
    left = rules.most_pairs - done
    if left <= 0:
        return f"{rules.most_pairs} pairs are the most"
    if settled and all(settled):
        return f"every interval is within ±{rules.resolution:.1%} after {done} pairs"
    more = rounds_to_come(done, rules)
    if rules.budget_seconds is not None and spent + seconds_of_more > rules.budget_seconds:
        rest = "another pair" if more == 1 else "two more pairs"
        return (
            f"{spent:.0f} of {rules.budget_seconds:.0f} {rules.unit} are spent after {done} pair{'s' * (done != 1)}, "
            f"and {rest} would need about {seconds_of_more:.0f}"
        )
    return ""


def rounds_to_come(done: int, rules: Rules) -> int:
    """Up to the next look."""
    return min(rules.most_pairs - done, 2 - done % 2)


def noise_to_come(done: int, rules: Rules) -> int:
    """Rounds of noise among those up to the next look, and right before them."""
    until = done + rounds_to_come(done, rules)
    return sum(done <= after < until for after in _noise_after(rules))


def has_room_for_noise(spent: float, seconds: float, rules: Rules) -> bool:
    """Whether a round of noise that is owed may run behind the rounds, with `NOISE_RESERVE`. seconds: that it takes."""
    return rules.budget_seconds is None or spent + seconds <= (1 + NOISE_RESERVE) * rules.budget_seconds


def _noise_after(rules: Rules) -> list[int]:
    """Behind how many rounds each round of noise runs."""
    few = [2 * max(1, (n + 1) * (rules.pairs // 2) // (rules.noise_pairs + 1)) for n in range(rules.noise_pairs)]
    return [min(after, rules.pairs - 1) for after in few]


def steps_for(step_seconds: float, steps: int = STEPS_A_BLOCK, seconds: float = SECONDS_A_BLOCK) -> int:
    """Of a block: at least so many, and so many as take so long."""
    return max(steps, math.ceil(seconds / step_seconds)) if step_seconds > 0 else steps


def again(order: Sequence[str], void: Collection[str], times: int) -> tuple[str, ...]:
    """The arms of a round whose blocks run again on the same documents, in the opposite order; none after `TIMES` times.

    void: the arms whose blocks do not count. times: how often these were measured. What is still void then is a finding
    and leaves its pairs out.
    """
    return tuple(arm for arm in reversed(order) if arm in void) if times < TIMES else ()
