"""Arms: one configuration each, by name, and what makes two of them different."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynotune.config.secrets import HIDDEN
from dynotune.config.whole import WholeConfig
from dynotune.speedups.contract import Scope
from dynotune.speedups.registry import speedups
from dynotune.train.checkpoints.decisions import DECISIONS, Matter
from dynotune.train.quiet import QUIET

CONTENT = ("per_device_train_batch_size", "gradient_accumulation_steps", "global_batch_size")
"""What a step holds, beside what the plan decides."""

OF_SPEEDUPS = frozenset({"speedups", "use_liger_kernel", "liger_kernel_config"})
"""Keys that do nothing but say which speed-ups run."""

WHOLE = (Scope.PLAN, Scope.PROCESS)
"""Scopes of speed-ups that may change all of a step."""

SHOWN_ONLY = "it decides what is shown and kept"

IN_PROCESS = frozenset(
    {
        "packed_execution", "micro_batch_tokens", "attn_implementation", "gradient_checkpointing",
        "gradient_checkpointing_kwargs", "padding_free", "use_liger_kernel", "liger_kernel_config", "activation_memory",
        "activation_memory_budget", "activation_offloading", "speedups", "logging_steps", "logging_strategy",
        "logging_first_step", "max_grad_norm", "learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon",
        "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps",
    }
)  # fmt: skip
"""Keys that one process can hold both values of, one after the other: what stands in the model is taken out and put in."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One configuration that is measured."""

    name: str
    config: WholeConfig


def devices_of(arm: Arm) -> int:
    """That it trains on."""
    return arm.config.gpus or 1


@dataclass(frozen=True, slots=True)
class Between:
    """What differs between two arms."""

    changed: Mapping[str, tuple[Any, Any]]
    """By key, the value of each; keys that only say what is shown and kept are not among them."""

    @property
    def same_steps(self) -> bool:
        """Whether a step holds the same examples in both. Keys of the batch may differ and give the same product: the plans
        say so, where both are known."""
        return not any(key in CONTENT or matter_of(key) is Matter.PLAN for key in self.changed)

    @property
    def same_model(self) -> bool:
        """Whether the same weights can be trained by both."""
        return all(matter_of(key) not in (Matter.ERROR, Matter.PLAN) for key in self.changed if key not in IN_PROCESS)

    @property
    def not_in_process(self) -> list[str]:
        """Why not in one process: keys, and speed-ups of the scope of a process. Empty where one can hold both."""
        found = [key for key in self.changed if key not in IN_PROCESS]
        a, b = self.changed.get("speedups", ({}, {}))
        for name, speedup in speedups().items():
            compiles = name == "compiled_layers"  # what was compiled is not thrown away with the model's forward
            if a.get(name) != b.get(name) and (speedup.scope is Scope.PROCESS or compiles):
                found.append(f"speedups.{name}")
        return found


def matter_of(key: str) -> Matter:
    """What a difference in a key does, as for a run that goes on with another value."""
    known = DECISIONS.get(key)
    return known.matter if known else Matter.WARNING


def between(a: WholeConfig, b: WholeConfig) -> Between:
    """What differs in `b`. Whether something is shown or kept is no difference."""
    first, second = a.public_dict(), b.public_dict()
    changed = {}
    for key in [*first, *(key for key in second if key not in first)]:
        known = DECISIONS.get(key)
        if key in QUIET or (known and known.reason == SHOWN_ONLY and key not in IN_PROCESS):
            continue
        if first.get(key) != second.get(key):
            changed[key] = first.get(key), second.get(key)
    if a.env != b.env:  # may choose kernels; of its values, which are shown to nobody, only the names are told
        names = sorted(name for name in {*a.env, *b.env} if a.env.get(name) != b.env.get(name))
        changed["env"] = _variables(a.env, names), _variables(b.env, names)
    return Between(changed)


def _variables(env: Mapping[str, str], names: Sequence[str]) -> str:
    return ", ".join(f"{name}={HIDDEN}" if name in env else f"{name} not set" for name in names)


def settings_of(first: WholeConfig, arm: WholeConfig) -> dict[str, Any]:
    """Keys in which an arm differs from the first one, with its values; of `speedups` each by itself."""
    found: dict[str, Any] = {}
    for key, (then, now) in between(first, arm).changed.items():
        if key != "speedups":
            found[key] = now
            continue
        for name in sorted({*then, *now}):
            if then.get(name) != now.get(name):
                found[f"speedups.{name}"] = now.get(name, "auto")
    return found


def in_words(settings: Mapping[str, Any]) -> str:
    """An arm's settings in a line."""
    return ", ".join(
        f"{key}: {str(value).lower() if isinstance(value, bool) else value}" for key, value in settings.items()
    )


def shares_matter(first: Arm, other: Arm) -> bool:
    """Whether on what a step of `first` is spent may tell the most that `other` can gain, by what the two ask for."""
    changed = between(first.config, other.config).changed
    a, b = changed.get("speedups", ({}, {}))
    whole = any(a.get(name) != b.get(name) and one.scope in WHOLE for name, one in speedups().items())
    return changed.keys() <= OF_SPEEDUPS and not whole and devices_of(first) == devices_of(other) == 1


def all_pairs(arms: Sequence[Arm]) -> list[Between]:
    """Of every arm against the first."""
    return [between(arms[0].config, arm.config) for arm in arms[1:]]
