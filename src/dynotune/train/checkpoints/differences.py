"""What differs between the run that wrote a checkpoint and the one that goes on from it: refused, said, or of no matter."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from dynotune.config.checking.preference import BY_BATCH
from dynotune.errors import ConfigError, TrainingError
from dynotune.printable import printable
from dynotune.train.checkpoints.decisions import DECISIONS, OTHER_LOSS, QUIET, SAME_OPTIMIZER, Matter

LENGTH = {"steps", "epochs"}
"""Values of the plan that may differ: a run may be made longer."""

_SHOWN = 80


class Difference(NamedTuple):
    """One key with another value."""

    key: str
    then: Any
    now: Any
    matter: Matter
    reason: str

    def __str__(self) -> str:
        return f"{self.key}: {_shown(self.then)} then, {_shown(self.now)} now"


class _Batch(Protocol):
    global_batch_size: int | None
    per_device_train_batch_size: int

    def examples_on(self, world: int) -> int: ...

    def replace(self, **changes: Any) -> Self: ...


Config = TypeVar("Config", bound=_Batch)


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    """Every key whose value differs. A key that one side lacks belongs to another version: it is shown as missing."""
    found = []
    for key in sorted(then.keys() | now.keys()):
        before, after = then.get(key), now.get(key)
        if key in QUIET or before == after:
            continue
        known = DECISIONS.get(key)
        matter = known.matter if known else Matter.WARNING
        reason = known.reason if known else "this version does not have it"
        if key == "seed" and now.get("random_weights") and now.get("use_peft"):
            matter, reason = Matter.ERROR, "the weights under the adapter are drawn from it"
        if key == "per_device_train_batch_size" and (_by_batch(then) or _by_batch(now)):
            matter, reason = Matter.ERROR, OTHER_LOSS
        if key == "optim" and any({before, after} <= names for names in SAME_OPTIMIZER):
            matter, reason = Matter.NOTHING, "both are names of one optimizer"
        found.append(Difference(key, before, after, matter, reason))
    return found


def check_same(
    path: Path, saved: Mapping[str, Any], plan: Mapping[str, Any], settings: Mapping[str, Any]
) -> list[Difference]:
    """Every difference that does not stop the run. Raises `TrainingError` with all that do: the plan's, then the keys'."""
    then = saved["plan"]
    changed = [k for k in then.keys() | plan.keys() if k not in LENGTH and then.get(k) != plan.get(k)]
    found = differences(saved["settings"], settings)
    if changed:
        listed = "; ".join(f"{key}: {then.get(key)} then, {plan.get(key)} now" for key in sorted(changed))
        keys = [str(one) for one in found if one.matter is Matter.PLAN]
        why = f" Keys that differ: {'; '.join(keys)}." if keys else ""
        raise TrainingError(
            f"{path} was written under another plan ({printable(listed)}), so its steps would hold other examples.{why}"
            " Resume with what that run had, or start a new run from its weights."
        )
    wrong = [one for one in found if one.matter is Matter.ERROR]
    if wrong:
        listed = "; ".join(f"{one} ({one.reason})" for one in wrong)
        raise TrainingError(
            f"{path} was written under another configuration: {listed}. Resume with what that run had, or start a new run"
            " from its weights."
        )
    done = saved["progress"]["step"]
    if plan["steps"] < done:
        raise TrainingError(
            f"{path} has done {done} steps and this run asks for {plan['steps']}. Ask for more, or take the model that is"
            " there."
        )
    return found


def check_reference(path: Path, then: str | None, now: str | None) -> None:
    """Raises `TrainingError` where a run would go on against another reference. What files and what tensors name
    (`files ...`, `tensors ...`) cannot be compared, nor what an older version did not name."""
    if then is None or now is None or then.split()[0] != now.split()[0] or then == now:
        return
    raise TrainingError(
        f"The run of {path} is measured against the model that it began from, and the weights here are others ({then} then,"
        f" {now} now): they were changed or trained since. Give the model as it was when the run began; the checkpoint"
        " brings what was trained."
    )


def said_of(found: list[Difference]) -> list[str]:
    """What a person is told of differences that do not stop the run."""
    lines = [f"note: {one}: {one.reason}" for one in found if one.matter is Matter.WARNING]
    rest = [one.key for one in found if one.matter in (Matter.PLAN, Matter.NOTHING)]
    if rest:
        lines.append(f"also differ, without effect on what is learned: {', '.join(rest)}")
    return lines


def with_batch_of(config: Config, path: Path, examples: int, given: bool, world: int = 1) -> tuple[Config, str | None]:
    """The configuration with the checkpoint's examples a step, and what to say where that changes something.

    examples: what a step of the checkpoint at `path` holds; world: ranks now; given: whether the configuration's author
    wrote `global_batch_size`. Raises `ConfigError` where it asks for another number.
    """
    if given and config.global_batch_size not in (None, examples):
        raise ConfigError(
            f"`global_batch_size: {config.global_batch_size}` and {path}, whose steps hold {examples} examples, contradict"
            " each other. Take `global_batch_size` out, or start a new run."
        )
    asked = config.examples_on(world)
    if asked == examples:
        return config, None
    # The product of the two is made to agree, so that the written configuration does not contradict itself.
    size = config.per_device_train_batch_size
    if not (_by_batch({"loss_type": getattr(config, "loss_type", None)}) and examples % size == 0):
        size = examples
    changed = config.replace(
        global_batch_size=examples, per_device_train_batch_size=size, gradient_accumulation_steps=examples // size
    )
    return changed, (
        f"note: a step keeps the {examples} examples that it has in {path}; this configuration alone would make it"
        f" {asked}. How they are spread over {world} rank{'s' * (world > 1)} and micro-batches changes nothing"
    )


def _by_batch(settings: Mapping[str, Any]) -> bool:
    """Whether a loss is defined on the pairs of a batch, whose size is then a part of the objective."""
    losses = settings.get("loss_type")
    return isinstance(losses, list) and not BY_BATCH.isdisjoint(losses)


def _shown(value: Any) -> str:
    text = printable(str(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
