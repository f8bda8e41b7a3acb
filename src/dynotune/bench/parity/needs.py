"""Which gates an arm needs: from the kinds of the speed-ups and from the keys in which it differs from the first."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dynotune.bench.asking.arms import CONTENT, SHOWN_ONLY, between, matter_of
from dynotune.bench.parity.held_out import why_nothing
from dynotune.config.whole import WholeConfig
from dynotune.speedups.registry import speedups
from dynotune.train.checkpoints.decisions import DECISIONS, EVALUATIONS, Matter

Gate = Literal["P1", "P2", "P3", "P4"]

PRECISION = frozenset({"bf16", "tf32", "use_cpu"})
"""Keys that change in which precision the same step is computed."""

OUTSIDE = frozenset(
    {
        "device_peak_tflops", "trust_remote_code", "dataset_num_proc", "token_cache", "token_cache_dir", "load_in_memory",
        "ddp_timeout", "num_train_epochs", "max_steps", "on_nonfinite_step", "max_nonfinite_steps",
        "max_consecutive_nonfinite_steps",
    }
)  # fmt: skip
"""Keys that touch no step: what is prepared before it, how many there are, what is done about one that fails."""

SAME_UPDATE = frozenset({"adamw_torch", "adamw_torch_fused"})
"""Optimizers by two names."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What an arm must pass."""

    kind: Literal["exact", "numeric", "behavioural", "unchanged"]
    gates: tuple[Gate, ...]
    keys: Mapping[str, str]
    """Why: of each key or speed-up that differs, the kind of the difference."""

    speedups: tuple[str, ...]
    """Those whose settings differ, and which the gate must therefore see in the other arm's step."""

    other_split: bool
    """Whether the arms cut a step into micro-batches otherwise by their configuration."""

    @property
    def why(self) -> str:
        """The keys that make it what it is."""
        return ", ".join(key for key, kind in self.keys.items() if kind == self.kind)


def needs_of(first: WholeConfig, other: WholeConfig, *, full: bool = False) -> Needs:
    """full: trajectories of exact arms, too, and held-out losses of all numeric ones."""
    changed = between(first, other).changed
    keys = {key: kind_of(key, *values, first, other) for key, values in changed.items() if key != "speedups"}
    differing = speedups_between(first, other)
    for name in differing:
        keys[f"speedups.{name}"] = str(speedups()[name].kind)
    if first.env != other.env:
        keys["env"] = "exact"  # its values are shown to nobody, and may choose kernels
    keys = {key: kind for key, kind in keys.items() if kind != "unchanged"}
    kinds = set(keys.values())
    kind: Any = next((kind for kind in ("behavioural", "numeric", "exact") if kind in kinds), "unchanged")
    split = "micro_batch_tokens" in keys or any(key in CONTENT for key in changed)
    gates = gates_of(kind, keys, full, rows_held_out=not why_nothing(first, other))
    return Needs(kind, gates, keys, differing, split)


def gates_of(kind: str, keys: Mapping[str, str], full: bool, rows_held_out: bool) -> tuple[Gate, ...]:
    if kind == "exact":
        optimizer = "optim" in keys or "speedups.fused_optimizer" in keys
        return ("P1", "P2", "P3") if full or optimizer else ("P1", "P2")
    if kind == "numeric":
        # An error that a lower precision is chosen for is larger than the baseline's: only where a key chooses it for the
        # plain path, too, is there one to be measured by. Others take the held-out loss in its place.
        by_key = all(key in PRECISION or key == "dtype" for key, of in keys.items() if of == "numeric")
        asked: tuple[Gate, ...] = ("P4",) if full or (rows_held_out and not by_key) else ()
        return ("P2", "P3", *asked) if by_key else ("P3", *asked)
    return ("P4",) if kind == "behavioural" else ()


def kind_of(key: str, then: Any, now: Any, first: WholeConfig, other: WholeConfig) -> str:
    """Of a difference in one key: exact, numeric, behavioural, or unchanged where no step knows of it."""
    known = DECISIONS.get(key)
    if key in OUTSIDE or (known and known.reason in (EVALUATIONS, SHOWN_ONLY)):
        return "unchanged"
    if key == "optim" and {then, now} <= SAME_UPDATE:
        return "exact"
    if key in CONTENT or key == "gpus":
        worlds = (first.gpus or 1, other.gpus or 1)
        same = first.examples_on(worlds[0]) == other.examples_on(worlds[1])
        return "exact" if same else "behavioural"
    if key in PRECISION or (key == "dtype" and first.use_peft and other.use_peft):
        return "numeric"
    return "exact" if matter_of(key) is Matter.NOTHING else "behavioural"


def speedups_between(first: WholeConfig, other: WholeConfig) -> tuple[str, ...]:
    """Names of speed-ups that are asked for otherwise, by whatever key."""
    return tuple(name for name in speedups() if setting(first, name) != setting(other, name))


def setting(config: WholeConfig, name: str) -> str:
    one = speedups()[name]
    return config.speedups.get(name) or (one.asked(config) or (one.default,))[0]
