"""Noise of hosts, made up and recorded, and whole benches on it: the schedule, stopping and verdicts as they are shipped.

Step seconds are relative: 1 is a step without noise. Legend of shapes: B benches, K blocks of a bench, S steps of a block,
the first of which is what switching arms costs and is dropped.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dynotune.bench.asking.schedule import STEPS_A_BLOCK, Rules, is_settled, rounds, steps_for, stop
from dynotune.bench.command import STEPS_A_FRESH_BLOCK, Options, _rules
from dynotune.bench.judging.verdict import Judgement, judge
from dynotune.bench.statistics import Estimate, estimate, half_width
from dynotune.config.sft import SFTConfig
from dynotune.results.result import Verdict

DATA = Path(__file__).with_name("data")

STEP_SECONDS = 0.5
"""Of hosts that are made up."""

Seconds = NDArray[np.float64]
Host = Callable[[np.random.Generator, int, int, int], Seconds]
"""Generator, B, K and S to step seconds [B, K, S]."""


@dataclass(frozen=True)
class MadeUp:
    """As in the protocol's simulation: normal noise of a step, a share of slow steps (5 to 30 % longer), clocks that drift
    with a correlation of 60 s where a step takes half a second, and processes that differ."""

    step: float
    slow: float
    drift: float
    process: float = 0.0
    """0: all blocks are of one process."""

    def __call__(self, random: np.random.Generator, benches: int, blocks: int, steps: int) -> Seconds:
        count = blocks * steps
        keep, level = np.exp(-STEP_SECONDS / 60), random.standard_normal(benches)
        drifts = np.empty((benches, count))
        for i in range(count):
            drifts[:, i] = level
            level = keep * level + np.sqrt(1 - keep**2) * random.standard_normal(benches)
        seconds = 1 + self.drift * drifts + self.step * random.standard_normal((benches, count))
        seconds *= 1 + (random.random((benches, count)) < self.slow) * random.uniform(0.05, 0.3, (benches, count))
        seconds = seconds.reshape(benches, blocks, steps)
        return seconds * np.exp(self.process * random.standard_normal((benches, blocks, 1)))


@dataclass(frozen=True)
class Recorded:
    """From a file of `benchmarks/step_noise.py`: stretches of so many blocks, each from a place of the series drawn at
    random, so that what neighbours have in common stays and benches are near to independent."""

    path: Path
    stretch: int = 4

    @cached_property
    def seconds(self) -> Seconds:
        return np.array(json.loads(self.path.read_text())["microseconds"], float) / 1e6

    @property
    def step_seconds(self) -> float:
        return float(np.median(self.seconds))

    def __call__(self, random: np.random.Generator, benches: int, blocks: int, steps: int) -> Seconds:
        series, stretches = self.seconds / self.step_seconds, -(-blocks // self.stretch)
        starts = random.integers(0, len(series) - self.stretch * steps, (benches, stretches, 1))
        drawn = series[starts + np.arange(self.stretch * steps)]
        return drawn.reshape(benches, stretches * self.stretch, steps)[:, :blocks]


def is_fresh(host: Host) -> bool:
    """Whether every block there has a process of its own: such a bench runs fewer pairs of longer blocks."""
    return isinstance(host, MadeUp) and host.process > 0


def rules_of(host: Host, *, quick: bool = False) -> Rules:
    """Of a bench there for which no number was typed. quick: with `--quick`."""
    return _rules(Options(SFTConfig(), "a", quick=quick), is_fresh(host))


def steps_a_block(host: Host) -> int:
    """As a bench there takes."""
    least = STEPS_A_FRESH_BLOCK if is_fresh(host) else STEPS_A_BLOCK
    return steps_for(host.step_seconds if isinstance(host, Recorded) else STEP_SECONDS, least)


@dataclass(frozen=True)
class Outcome:
    """Of one bench."""

    estimate: Estimate
    judgement: Judgement
    ended: str

    def misses(self, effect: float) -> bool:
        """Whether the interval leaves the true log ratio out."""
        return not self.estimate.low <= effect <= self.estimate.high


Stopping = Callable[[list[float], list[float], int, Rules], str]


def for_precision(pairs: list[float], noise: list[float], done: int, rules: Rules) -> str:
    return stop([done >= 2 and is_settled(half_width(pairs), done, rules)], done, rules)


def for_significance(pairs: list[float], noise: list[float], done: int, rules: Rules) -> str:
    """What must not be done: end as soon as the interval leaves zero out."""
    if done >= rules.most_pairs:
        return "the cap"
    ahead = done >= rules.pairs and abs(np.mean(pairs)) > half_width(pairs)
    return "significant" if ahead else ""


def benches(
    host: Host,
    count: int,
    effect: float = 0.0,
    rules: Rules | None = None,
    stopping: Stopping = for_precision,
    steps: int = 0,
) -> list[Outcome]:
    """Runs so many benches of A against a B whose rate is e^effect times A's. rules, steps: None, 0: as a bench takes."""
    rules = rules or rules_of(host)
    blocks = 2 * (rules.most_pairs + rules.noise_pairs)
    seconds = host(np.random.default_rng(17), count, blocks, (steps or steps_a_block(host)) + 1)
    log_rates = -np.log(seconds[:, :, 1:].sum(axis=2))
    return [_bench(row, seed, effect, rules, stopping) for seed, row in enumerate(log_rates)]


def _bench(log_rates: Seconds, seed: int, effect: float, rules: Rules, stopping: Stopping) -> Outcome:
    pairs: list[float] = []
    noise: list[float] = []
    ended = ""
    for _ in _measured(log_rates, seed, effect, rules, pairs, noise):
        if ended := stopping(pairs, noise, len(pairs), rules):
            break
    found = estimate(pairs, noise)
    return Outcome(found, judge(found), ended)


def _measured(
    log_rates: Seconds, seed: int, effect: float, rules: Rules, pairs: list[float], noise: list[float]
) -> Iterator[None]:
    """Adds log ratios of pairs, and of A against itself, in the order of a bench; comes back after each pair."""
    block = 0
    for one in rounds(["A", "B"], seed, rules):
        first, second = (float(rate) for rate in log_rates[block : block + 2])
        block += 2
        if one.of_noise:
            noise.append(second - first)
            continue
        pairs.append(effect + (second - first if one.arms == ("A", "B") else first - second))
        yield


@dataclass(frozen=True)
class GoneOn:
    """A bench that was unresolved when its pairs were spent, and went on."""

    said: int
    """Pairs that it would need about, by what it said."""

    resolved: bool
    """Whether that many more were enough."""

    needed: int | None
    """After which it was resolved; None for more than were tried."""


def going_on(host: Host, count: int, effect: float, pairs: int, most: int = 150) -> list[GoneOn]:
    """Of so many benches of `pairs` pairs, those that are unresolved and say how many more they need, up to `most`.

    Each goes on for these, and on until it is resolved."""
    rules = Rules(pairs=min(6, pairs), most_pairs=pairs + 4 * most)
    limit = pairs + 2 * most
    seconds = host(np.random.default_rng(23), count, 2 * (limit + rules.noise_pairs), steps_a_block(host) + 1)
    found = []
    for seed, row in enumerate(-np.log(seconds[:, :, 1:].sum(axis=2))):
        ratios, noise = _pairs_of(row, seed, effect, rules, limit)
        first = judge(estimate(ratios[:pairs], noise))
        said = first.needs_more_pairs
        if first.verdict is not Verdict.UNRESOLVED or said is None or said > most:
            continue

        def resolved(more: int, ratios: list[float] = ratios, noise: list[float] = noise) -> bool:
            return judge(estimate(ratios[: pairs + more], noise)).verdict is not Verdict.UNRESOLVED

        looks = sorted({2 * round(said * share / 2) for share in LOOKED_AT} - {0})
        needed = next((more for more in looks if pairs + more <= limit and resolved(more)), None)
        found.append(GoneOn(said, resolved(said), needed))
    return found


EFFECTS = (0.0, 0.004, 0.0075, 0.015, 0.03)
"""Of changes that benches leave open, in ln."""

LOOKED_AT = (0.25, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0)
"""Of the pairs that it said."""


def right_of(found: list[GoneOn]) -> tuple[float, float]:
    """Share that was resolved by as many more as were said; the median of needed to said."""
    ratios = [one.needed / one.said if one.needed is not None else np.inf for one in found]
    return float(np.mean([one.resolved for one in found])), float(np.median(ratios))


def _pairs_of(
    log_rates: Seconds, seed: int, effect: float, rules: Rules, count: int
) -> tuple[list[float], list[float]]:
    """Log ratios of so many pairs, and of A against itself."""
    ratios, noise = list[float](), list[float]()
    for _ in _measured(log_rates, seed, effect, rules, ratios, noise):
        if len(ratios) == count:
            break
    return ratios, noise


def naive(host: Host, count: int, steps: int = 80) -> float:
    """Share of false calls of the usual design: so many steps of A, then as many of B, and Welch's t test on the steps."""
    seconds = host(np.random.default_rng(17), count, 2, steps)
    p = stats.ttest_ind(seconds[:, 0], seconds[:, 1], axis=1, equal_var=False).pvalue
    return float(np.mean(p < 0.05))


QUIET: dict[str, Host] = {
    "quiet": MadeUp(step=0.002, slow=0, drift=0.003),
    "drift 1 %": MadeUp(step=0.006, slow=0, drift=0.01),
    "drift 2 %": MadeUp(step=0.006, slow=0, drift=0.02),
    "steps 1 %, drift 2 %": MadeUp(step=0.01, slow=0, drift=0.02),
}
"""Whose pairs are near to normal, so that the interval misses as often as it says."""

SLOW_STEPS: dict[str, Host] = {
    "slow steps, drift 0.3 %": MadeUp(step=0.006, slow=0.02, drift=0.003),
    "slow steps, drift 2 %": MadeUp(step=0.006, slow=0.02, drift=0.02),
    "fresh processes": MadeUp(step=0.006, slow=0.02, drift=0.01, process=0.004),
}
"""Which widen the interval more than they shift its middle: it misses less often than it says."""

NOISY: dict[str, Host] = {"noisy": MadeUp(step=0.15, slow=0.05, drift=0.03)}

NOISY_PAIRS = 0.02
"""Standard deviation of pairs above which a recorded host is noisy: 3 % cannot be told from nothing there in 16 pairs."""

for _path in sorted(DATA.glob("step_noise_*.json")):
    _host = Recorded(_path)
    _blocks = np.log(_host(np.random.default_rng(0), 500, 2, steps_a_block(_host)).sum(axis=2))
    (NOISY if np.std(_blocks[:, 1] - _blocks[:, 0]) > NOISY_PAIRS else SLOW_STEPS)[_path.stem] = _host

EVERY = QUIET | SLOW_STEPS | NOISY
