"""How a run's steps are executed: the speed-ups that it takes, put into the model, and the plan laid out for them."""

from collections.abc import Callable, Hashable, Mapping, MutableMapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynotune.config.whole import WholeConfig
from dynotune.estimate.memory import StepMemory, live_memory
from dynotune.estimate.memory_curve import DOCUMENT_BY_DOCUMENT
from dynotune.execution.path import ExecutionPath
from dynotune.execution.paths import Paths
from dynotune.execution.side_by_side import SideBySidePath
from dynotune.measure.document_cost import document_cost
from dynotune.measure.parts import Parts
from dynotune.model.as_it_was import as_it_was
from dynotune.model.aside import Aside
from dynotune.model.attention import hidden_states
from dynotune.model.base import base_of
from dynotune.model.families import FamilyBatch, pack_families
from dynotune.model.packed import PackedBatch, pack
from dynotune.model.precision import Precision
from dynotune.parallel.ranks import Ranks
from dynotune.plan.ladder import COMPILED_RUNGS, GRAPHS_SLACK
from dynotune.plan.pairs import PairSpans
from dynotune.plan.plan import Plan
from dynotune.results.effects import effects_of
from dynotune.speedups.choose import Decision, decide, settle
from dynotune.speedups.contract import Ahead, Context, No
from dynotune.speedups.failed import keep_failed
from dynotune.speedups.installed import Installed
from dynotune.speedups.registry import speedups
from dynotune.speedups.remembered import Remembered
from dynotune.speedups.site import Site
from dynotune.speedups.table import EffectOf
from dynotune.train.evaluate import HeldOut
from dynotune.train.faults.ways import Ways
from dynotune.train.start.device import autocast_of
from dynotune.train.start.memory_choice import MemoryChoice, choose_memory, why_no_curve

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Execution:
    """How a run's steps are executed."""

    path: ExecutionPath
    plan: Plan
    installed: Installed
    says: list[str]
    memory: Callable[[], StepMemory]
    """Counts what a step takes of memory. It may run a few tokens through the model."""

    remembered: Remembered
    """What this machine knows of speed-ups."""

    ways: Ways
    """To execute a step again otherwise, where it went wrong."""

    @property
    def site(self) -> Site:
        return self.installed.site

    @property
    def effect(self) -> EffectOf:
        """What speed-ups were measured to gain on this machine in this kind of work."""
        context = self.site.context
        return effects_of(self.remembered.machine, context.work, context.parameters)

    @property
    def autocast(self) -> Callable[[], Any]:
        """Makes the context of a forward pass."""
        return lambda: self.installed.site.autocast()


def choose_execution(
    config: WholeConfig,
    plan: Plan,
    model: "PreTrainedModel",
    paths: Paths,
    *,
    held_out: Mapping[str, HeldOut],
    precision: Precision,
    undo: ExitStack,
    ranks: Ranks,
    say: Callable[[str], None],
    examined: MutableMapping[Hashable, Any] | None = None,
    parts: Parts | None = None,
) -> Execution:
    """Put the speed-ups in that are asked for and can be, and lay the plan out. `undo` gives the model back as it was.

    paths: makes the path that is taken.
    held_out: what is evaluated, by the same path.
    ranks: those that execute it together, all alike: what one cannot, none does.
    examined: what was found before by trying this model out (`Site.examined`).
    parts: counts what it takes, by speed-up and by what else is done.

    Raises `ConfigError` where a speed-up is demanded and cannot be.
    """
    sequence = max(plan.longest_document, *(held.longest_document for held in held_out.values()), 0)
    context = context_of(config, model, precision, sequence, plan=plan)
    plain_autocast = autocast_of(precision, context.device)
    site = Site(context, plain_autocast, examined={} if examined is None else examined)
    remembered = Remembered.here(context.device, say)
    path: ExecutionPath
    parts = parts or Parts()

    def look() -> tuple[StepMemory, int]:
        return look_at_memory(config, precision, installed, path)

    with ExitStack() as putting_in:
        with parts.of("looking for speed-ups"):
            decisions = _decisions(config, context, remembered, ranks)
        installed = Installed(
            decisions,
            site,
            lambda no: _on_any_rank(no, ranks),
            lambda speedup, reason: keep_failed(remembered, speedup, context, reason),
            parts.of,
        )
        putting_in.callback(installed.close)
        if site.packed:
            path = packed = paths.packed(site, _asides(installed))
            putting_in.callback(packed.close)
            with parts.of("micro-batches"):
                plan = plan.of_units(path.units(plan.spans))
            longest = max(plan.longest, *(held.on(path).longest for held in held_out.values()), 0)
            with uncounted(packed), parts.of("activation memory"):
                choice = choose_memory(
                    config, plan, packed, installed, longest=longest, look=look, ranks=ranks, notebook=remembered
                )
            rungs = COMPILED_RUNGS if installed.get("compiled_layers") is not None else None
            slack = GRAPHS_SLACK if installed.get("step_graphs") is not None else 0.0
            with parts.of("micro-batches"):
                cost = document_cost(model, plan, labelled_rows_head=site.labelled_rows)
                plan = plan.executed(choice.capacity.tokens, longest, cost, rungs, slack)
                says = _packed_in_words(config, plan, choice, installed)
        else:
            path = paths.plain(model)
            plan = plan.of_units(path.units(plan.spans))
            plan = plan.executed(None, cost=document_cost(model, plan, labelled_rows_head=False))
            says = [_why_plain(installed), *why_no_curve(DOCUMENT_BY_DOCUMENT)]
        says += [*installed.lines(), *site.says]
        if site.packed:
            with uncounted(path):
                says += _warmed_up(installed, path, plan, sequence, say, parts)
        undo.push(putting_in.pop_all())
    ways = Ways(model, paths, path, installed, plain_autocast)
    return Execution(path, plan, installed, says, lambda: look()[0], remembered, ways)


def context_of(
    config: WholeConfig,
    model: "PreTrainedModel",
    precision: Precision,
    longest: int,
    live: bool = True,
    plan: Plan | None = None,
) -> Context:
    """What speed-ups may ask of this run."""
    weights: Any = model.get_input_embeddings().weight
    compute = torch.bfloat16 if precision.compute_bf16 else weights.dtype
    return Context(config, model, next(model.parameters()).device, compute, precision, longest, live, plan)


def _decisions(config: WholeConfig, context: Context, remembered: Remembered, ranks: Ranks) -> list[Decision]:
    """Of the registry; what another rank left out is left out here too, since ranks put in the same, in the same order."""
    decisions = decide(config, context, speedups(), remembered.refusal)
    refused = {one.name: one.no for one in decisions if one.no and not one.behind}
    reasons = ranks.gather({name: astuple(no) for name, no in refused.items()})
    for one in decisions:
        for rank, theirs in enumerate(reasons):
            if one.name not in refused and one.name in theirs:
                no = No(*theirs[one.name])
                one.refuse(replace(no, reason=f"{no.reason} (rank {rank})"))
                break
    settle(decisions, context)  # anew: who stood back behind one that is refused now may run
    return decisions


def _on_any_rank(no: No | None, ranks: Ranks) -> No | None:
    """Why not, if on any rank: what one of them cannot do, none does."""
    every = ranks.gather(astuple(no) if no else None)
    found = [(rank, No(*why)) for rank, why in enumerate(every) if why]
    if not found:
        return None
    rank, why = found[0]
    return why if len(found) == ranks.world else replace(why, reason=f"{why.reason} (rank {rank})")


def _why_plain(installed: Installed) -> str:
    packed = next(one for one in installed.decisions if one.name == "packed_execution")
    assert packed.no is not None
    if packed.setting == "off":
        return f"execution: plain, one document at a time, as `{packed.asked_by}` asks"
    return f"note: execution: plain, one document at a time: {packed.no.reason}"


def uncounted(path: ExecutionPath) -> AbstractContextManager[None]:
    """Inside, calls of a trial are made, not of training: what kernels leave to modules is nothing to tell."""
    return path.uncounted() if isinstance(path, SideBySidePath) else nullcontext()


def _asides(installed: Installed) -> dict[str, Aside]:
    """By name of a speed-up, the count of calls that it left to the modules it stands in for."""
    return {one.name: one.installed.aside for one in installed if one.installed and one.installed.aside}


def _packed_in_words(config: WholeConfig, plan: Plan, choice: MemoryChoice, installed: Installed) -> list[str]:
    """What is to be said of packed execution where it stands. plan: laid out."""
    assert plan.ladder is not None
    apart = "documents" if plan.packing is None or plan.packing.isolated else "bins"
    if isinstance(plan.spans, PairSpans):
        apart = "pairs, the beginning of both sides once" if installed.site.shared_beginnings else "sides of pairs"
    first = f"execution: packed, isolated {apart}: {plan.layout_summary()}"
    most = f"a micro-batch holds up to {plan.ladder.top:,} tokens: {choice.capacity.why_of(plan.ladder.top)}"
    says = [first, most, *choice.says]
    asked = f"attn_implementation: {config.attn_implementation}"
    if config.attn_implementation and not any(one.asked_by == asked for one in installed):
        says.append(
            f"note: `{asked}` is for the plain path and for generations; packed execution has its own attention"
        )
    return says


def _warmed_up(
    installed: Installed, path: ExecutionPath, plan: Plan, longest: int, say: Callable[[str], None], parts: Parts
) -> list[str]:
    """What speed-ups do before the first step, in words."""
    layout, lines = plan.layout_of_run, list[str]()
    for one in installed:
        if one.installed and one.installed.warm_up:
            instead = partial(installed.instead, one)
            ahead = Ahead(path.engaged, longest, layout.used, float(layout.processed_tokens.mean()), instead, say)
            with parts.of(one.name):
                lines += one.installed.warm_up(ahead)
    return lines


def look_at_memory(
    config: WholeConfig, precision: Precision, installed: Installed, path: ExecutionPath
) -> tuple[StepMemory, int]:
    """What a step takes, by what autograd keeps of a few tokens under `path`, and bytes that the device has free for it."""
    site = installed.site
    model, device = site.model, site.context.device

    def run(tokens: int) -> Any:
        with path.engaged(), site.autocast():
            if isinstance(path, SideBySidePath):
                return hidden_states(model, _made_up(tokens, site.shared_beginnings, device))
            decoder = base_of(model).get_decoder()
            return decoder(input_ids=torch.ones(1, tokens, dtype=torch.int64, device=device), use_cache=False)

    with uncounted(path), as_it_was(model, device):
        model.train()
        return live_memory(model, config, precision, run, installed)


def _made_up(tokens: int, shared: bool, device: torch.device) -> PackedBatch | FamilyBatch:
    """A document of so many tokens, or two of three quarters as many that have half of all in common."""
    ids = np.ones(tokens, np.int32)
    if not shared or tokens < 4:
        return pack([(ids, ids)], tokens, device)
    common, answer = tokens - 2 * (tokens // 4), tokens // 4
    sides = [np.append(ids[:common], np.full(answer, side, np.int32)) for side in (0, 1)]
    return pack_families([[(side, side) for side in sides]], tokens, device)
