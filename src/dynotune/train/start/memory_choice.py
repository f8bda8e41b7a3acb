"""How many tokens a micro-batch holds and what is done about activations: as asked, as remembered, or as tried out here."""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from dynotune.command_line import SHOW_MEMORY
from dynotune.config.whole import WholeConfig
from dynotune.errors import TrainingError
from dynotune.estimate.capacity import Capacity, micro_batch_capacity
from dynotune.estimate.fastest import (
    WORTH,
    Measured,
    Question,
    Setting,
    largest_step,
    most_useful,
    question,
    relative_costs,
    try_out,
)
from dynotune.estimate.memory import StepMemory
from dynotune.estimate.memory_curve import ALL_ASKED, ON_CPU, Point, curve, lines, nothing_to_show
from dynotune.execution.side_by_side import SideBySidePath
from dynotune.measure.busy import useful_tokens
from dynotune.measure.memory import GIB, optimizer_states
from dynotune.model.activations.policy import policy_of
from dynotune.parallel.ranks import Ranks
from dynotune.plan.plan import Plan
from dynotune.speedups.activation import POLICIES, PREFIX, ActivationPolicy, asked_policy
from dynotune.speedups.choose import conflict
from dynotune.speedups.contract import No
from dynotune.speedups.installed import Installed
from dynotune.speedups.policies import in_words, left_out
from dynotune.train.start.dry_run import CudaGauge, DryRun, Gauge, policy_in_place

NAME = "activation_memory"
"""Under which a choice is remembered."""


MORE_FREE = 1.02
"""Times the free memory of when it was chosen, from which on a choice is looked at again: a context of the driver or two
are no other card."""


class Notebook(Protocol):
    """What a machine remembers (`dynotune.speedups.remembered.Remembered`)."""

    def check(self, name: str, key: str) -> dict[str, Any] | None: ...
    def keep_check(self, name: str, key: str, result: dict[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class MemoryChoice:
    """What was chosen."""

    capacity: Capacity
    policy: str
    """As `activation_memory` calls it; it stands in the model."""

    curve: list[Point] = field(default_factory=list)
    """What there was to choose from; empty where nothing was chosen."""

    says: list[str] = field(default_factory=list)


def choose_memory(
    config: WholeConfig,
    plan: Plan,
    path: SideBySidePath,
    installed: Installed,
    *,
    longest: int,
    look: Callable[[], tuple[StepMemory, int]],
    ranks: Ranks,
    notebook: Notebook,
    gauge: Gauge | None = None,
) -> MemoryChoice:
    """Choose, and put the policy in. All ranks call it together, and take what the fullest of their devices holds.

    plan: laid out or not. longest: tokens of the longest document that will come. look: counts what a step takes and what is
    free (`live_memory`). gauge: reads the memory; default that of the GPU; without a GPU and a gauge nothing is tried out.
    """
    context = installed.site.context
    asked = asked_policy(config)
    tokens = config.micro_batch_tokens
    assert tokens != "auto"
    policy_there = policy_of(installed.site.model)
    if gauge is None and not context.on_gpu:
        there = micro_batch_capacity(tokens, longest, context.device.type)
        return MemoryChoice(there, policy_there, says=why_no_curve(ON_CPU))
    if asked is not None and tokens is not None:
        return MemoryChoice(micro_batch_capacity(tokens, longest, "cuda"), policy_there, says=why_no_curve(ALL_ASKED))
    of_device = gauge or CudaGauge(context.device)

    def chosen() -> tuple[Setting, str, list[Point], list[str]]:
        memory, free = look()
        to_choose = asked is None and policy_there == "none"
        out = _left_out(installed) if to_choose else {}
        policies = [one for one in POLICIES if one not in out] if to_choose else [policy_there]
        costs = relative_costs(policies, context.has_adapter)
        most = most_useful(plan, useful_tokens(installed.site.model))
        of = question(free, lambda policy, size: memory.under(policy).needed(size), costs, longest, tokens, most)
        setting, why = _choose(config, plan, path, installed, of, longest, notebook, of_device)
        shared = _least(ranks.gather((setting.policy, setting.tokens)))
        if shared != setting:
            setting, why = shared, "what the fullest GPU holds"
        points = curve(of, setting)
        fits = of.fits(setting)
        said = in_words(out, nothing_fits=not fits) if setting.policy != "none" or not fits else []
        return setting, why, points, [*said, *(lines(points, of.free) if SHOW_MEMORY.get() else [])]

    # What stands here again is the same arm of a bench again: with other micro-batches it would be another one.
    setting, why, points, shown = installed.site.once(("memory", longest), chosen)
    if setting.policy != policy_there:
        one = next(one for one in installed.decisions if one.name == f"{PREFIX}{setting.policy}")
        for other in [other for other in installed if conflict(one.speedup, other.speedup)]:
            installed.remove(other, No(f"{one.name} runs in its place, because memory is short", expected=True))
        if one.installed is None and not installed.put_in(one):
            raise TrainingError(
                f"{one.name} could be put into the model when memory was tried out, and cannot now:"
                f" {one.no.reason if one.no else 'no reason was given'}. Write `activation_memory: {policy_there}`, with"
                " `micro_batch_tokens` as far as that fits."
            )
    return MemoryChoice(Capacity(setting.tokens, why), setting.policy, points, shown)


def why_no_curve(why: str) -> list[str]:
    """For whoever asked to see what there was to choose from."""
    return [nothing_to_show(why)] if SHOW_MEMORY.get() else []


def _choose(
    config: WholeConfig,
    plan: Plan,
    path: SideBySidePath,
    installed: Installed,
    of: Question,
    longest: int,
    notebook: Notebook,
    gauge: Gauge,
) -> tuple[Setting, str]:
    """The setting for this device, and why."""
    step = largest_step(plan)
    key = _key(config, installed, of, step, plan)
    known = notebook.check(NAME, key)

    def remembered(known: dict[str, Any]) -> tuple[Setting, str]:
        setting = Setting(known["policy"], known["tokens"])
        of.tried[setting] = Measured(known["bytes"], known["reserved"], known["seconds"])
        return setting, f"{_words(of, setting)}, measured here on {known['date']}"

    if known is not None and _still_the_fastest(of, known):
        return remembered(known)
    model = installed.site.model
    states = optimizer_states(model, config.optim, config.optim_args).bytes
    began = time.perf_counter()
    run = DryRun(installed, path, plan, longest, states, lambda size: step > size, gauge)
    found = try_out(of, run)
    if found is None and known is not None and _fits(of, known):  # more was free, and not for what was tried
        return remembered(known)
    seconds = time.perf_counter() - began
    if found is None:
        smallest = of.smallest()
        return smallest, (
            f"the longest document, pair or sorted batch of pairs takes {longest:,} tokens, and nothing that was tried fits"
            f" ({seconds:.1f} s): if it fails, set a smaller `max_length`"
        )
    measured = of.tried[found]
    assert measured is not None
    date = datetime.now(UTC).date().isoformat()
    result = {"policy": found.policy, "tokens": found.tokens, "bytes": measured.bytes, "reserved": measured.reserved,
              "seconds": measured.seconds, "free": of.free, "date": date}  # fmt: skip
    notebook.keep_check(NAME, key, result)
    return found, f"{_words(of, found)}, tried out in {seconds:.1f} s"


def _fits(of: Question, known: dict[str, Any]) -> bool:
    """Whether what was measured earlier fits into what is free now."""
    fits: bool = of.least <= known["tokens"] <= of.most and known["bytes"] <= of.limit()
    return fits


def _still_the_fastest(of: Question, known: dict[str, Any]) -> bool:
    """Whether what was chosen earlier fits, and was not chosen because somebody else held memory that is free now."""
    if not _fits(of, known):
        return False
    if of.free <= known.get("free", 0) * MORE_FREE:
        return True
    faster = of.fastest()
    return faster is None or of.cost(faster) > WORTH * of.cost(Setting(known["policy"], known["tokens"]))


def _words(of: Question, setting: Setting) -> str:
    found = of.tried[setting]
    assert found is not None
    how = {
        "none": "with all activations kept",
        "selective": "with cheap results made again",
        "full": "with layers computed again",
        "offload": "with layers computed again from inputs in host memory",
    }[setting.policy]
    return f"the fastest that fits, {how}: {found.bytes / GIB:.1f} of {of.free / GIB:.1f} GiB beside the weights"


def _left_out(installed: Installed) -> dict[str, No]:
    """Policies that cannot be taken here, and why not."""

    def in_model(one: ActivationPolicy) -> No | None:
        with policy_in_place(installed, one.policy) as there:
            return None if there else No("it cannot be put into this model", expected=True)

    return left_out(installed.decisions, installed.site.context, in_model)


def _least(every: list[Any]) -> Setting:
    """What all ranks can hold: under the policy that takes least, the fewest tokens."""
    policy = max((policy for policy, _ in every), key=POLICIES.index)
    return Setting(policy, min(tokens for _, tokens in every))


def _key(config: WholeConfig, installed: Installed, of: Question, step: int, plan: Plan) -> str:
    """Everything besides the machine on which what fits depends. step: tokens of the largest."""
    model = installed.site.model
    sequences, _ = plan.spans.attention_of(plan.rows)
    tensors = [(name, list(p.shape), str(p.dtype), p.requires_grad) for name, p in model.named_parameters()]
    facts = {
        "model": type(model).__name__,
        "tensors": tensors,
        "speed-ups": sorted(one.name for one in installed),
        "attention": installed.site.attention,
        "compute": str(installed.site.context.compute),
        "optimizer": [config.optim, config.optim_args],
        "dropout": config.lora_dropout if config.use_peft else None,
        "policies": [*of.costs],
        "method": config.method.command,
        # Of pairs, which share their prompt: keys that a token has.
        "keys": round(int(sequences.sum()) / int(plan.spans.lengths_of(plan.rows).sum()), 1),
        "tokens": [of.least, of.most],
        # Of several micro-batches the later ones find the gradients of the first.
        "accumulates": step > of.most,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
