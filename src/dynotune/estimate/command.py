"""`dynotune plan`: what a configuration will do, from its data and the shapes of its model. Nothing trains."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dynotune.config.whole import WholeConfig
from dynotune.data.load import load_train_and_eval
from dynotune.data.tokens.encode import Encoder
from dynotune.errors import ModelError
from dynotune.estimate.capacity import Capacity, micro_batch_capacity
from dynotune.estimate.fastest import Question, Setting, most_useful, question, relative_costs
from dynotune.estimate.memory import CONTEXT, StepMemory, step_memory, target_of
from dynotune.estimate.memory_curve import DOCUMENT_BY_DOCUMENT, ON_CPU, curve, nothing_to_show
from dynotune.estimate.memory_curve import lines as curve_lines
from dynotune.estimate.show import show
from dynotune.estimate.speedups import as_laid_out
from dynotune.measure.busy import useful_tokens
from dynotune.measure.document_cost import document_cost
from dynotune.model.arguments import check_arguments
from dynotune.model.positions import check_positions
from dynotune.model.tokenizer import load_tokenizer
from dynotune.plan.content import make_content
from dynotune.plan.ladder import COMPILED_RUNGS, GRAPHS_SLACK
from dynotune.plan.make import rows_without_labels
from dynotune.plan.numbered import numbered
from dynotune.plan.plan import Plan
from dynotune.plan.summary import updates_per_epoch
from dynotune.plan.trl_packing import pack_rows
from dynotune.say import sayer
from dynotune.speedups.activation import POLICIES, ActivationPolicy, asked_policy
from dynotune.speedups.contract import No
from dynotune.speedups.policies import in_words, left_out
from dynotune.speedups.table import show as show_speedups

if TYPE_CHECKING:
    from rich.console import Console

    from dynotune.data.examples import Examples


def plan_run(
    config: WholeConfig,
    console: "Console",
    rate: float | None = None,
    memory_gib: float | None = None,
    show_memory: bool = False,
) -> dict[str, Any]:
    """Print and return the plan of a run: steps, micro-batches, tokens, updates, memory by part and time.

    rate: real tokens a second, from an earlier run; default that of the run in `output_dir`, where there is one.
    memory_gib: what the device may use; default what is free on the GPU here.
    show_memory: print memory by policy of activations and size of micro-batches, too.

    Raises `ConfigError`, `DataError` or `TemplateError`, as a run would before its first step.
    """
    say = sayer(console)
    for sentence in config.notices:
        say(f"note: {sentence}")
    for sentence in check_arguments(config):
        say(f"note: {sentence}")
    encoder = Encoder(load_tokenizer(config, config), config)
    train, evaluation = load_train_and_eval(config, encoder, None, say=say)
    ledger, examples = train.ledger, train.examples
    seed = config.seed if config.shuffle_dataset else None
    strategy = config.packing_strategy if config.packing else None
    content = make_content(examples, config, ledger, shuffle_seed=seed, packing=strategy)
    units = numbered(content, config)
    plan = Plan(
        units.spans,
        units.rows,
        config,
        config.seed,
        examples.digest(),
        packing=content.packing,
        sets=units.sets,
        world=config.gpus or 1,
    )  # plain until its execution is chosen
    evaluated = config.packing_strategy if config.packing_of_evaluation else None
    held_out = [
        numbered(make_content(one.examples, config, one.ledger, packing=evaluated), config, held_out=True)
        for one in evaluation.values()
    ]
    target = target_of(config, memory_gib)
    document = max(plan.longest_document, *(int(one.spans.sequence_lengths_of(one.rows).max()) for one in held_out), 0)
    try:
        memory: StepMemory | None = step_memory(config, target, document, plan)
        unknown = None
    except ModelError as error:
        memory, unknown = None, str(error)
    beyond = check_positions(memory.model, document) if memory is not None else None
    rows = memory.planned.rows() if memory is not None and memory.planned is not None else []
    plan = plan.of_units(as_laid_out(plan.spans, config, rows))
    evaluated_units = [(as_laid_out(one.spans, config, rows), one.rows) for one in held_out]
    longest = max(plan.longest, *(units.largest(some, np.array([0, len(some)])) for units, some in evaluated_units), 0)
    capacity, points, free, short = None, [], None, list[str]()
    share = plan.label_share
    if config.execution[0] != "off":
        capacity = micro_batch_capacity(config.micro_batch_tokens, longest, target.type)
        if memory is not None and target.type == "cuda":
            if target.memory is not None:
                there = sum(p.bytes for p in memory.parts(64, share, packed=True) if p.name == "weights")
                free = target.memory - there - CONTEXT
            out = policies_left_out(config, memory)
            choice = memory_question(config, plan, memory, out, free, longest, share)
            chosen = choice.fastest() if free is not None else None
            if free is not None and (chosen is None or chosen.policy != "none"):
                short = in_words(out, nothing_fits=chosen is None)
            if chosen is not None:
                capacity, memory = capacity_of(choice, chosen, config.micro_batch_tokens), memory.under(chosen.policy)
            elif free is not None:
                chosen = choice.smallest()
                memory = memory.under(chosen.policy)
                capacity = too_long(longest, chosen.tokens, asked_policy(config), out)
            points = curve(choice, chosen, known=free is not None)
        takes = memory.planned.takes if memory is not None and memory.planned is not None else lambda name: False
        rungs = COMPILED_RUNGS if takes("compiled_layers") else None
        slack = GRAPHS_SLACK if takes("step_graphs") else 0.0
        plan = plan.executed(capacity.tokens, longest, rungs=rungs, slack=slack)
    if plan.world > 1 and memory is not None:
        cost = document_cost(memory.model, plan, labelled_rows_head=plan.ladder is not None)
        plan = plan.executed(plan.micro_batch_tokens, longest, cost)
    planned = plan.to_json()
    tokens = planned["layout"]["tokens_per_epoch"]
    result = {
        "plan": planned,
        "execution": _execution(plan, capacity, config.execution[1]),
        "ledger": ledger.to_json(),
        "tokens": {"read": ledger.tokens_read, "truncated": ledger.tokens_truncated, "skipped": ledger.tokens_skipped}
        | {"saved_by_sharing": planned["layout"].get("tokens_saved_by_sharing", 0)}
        | {"last": planned["layout"].get("last_tokens_not_computed", 0)}
        | tokens,
        "updates": _updates(plan, config, examples, seed),
        "memory": {
            "device": target.name,
            "device_bytes": target.memory,
            "parts": [p.to_json() for p in memory.parts(_largest(plan, longest), share, packed=plan.ladder is not None)]
            if memory
            else None,
            "unknown": unknown,
            "policy": memory.policy if memory else None,
            "choices": [point.to_json() for point in points],
        },
        "time": _time(tokens["real"] * plan.total_steps / plan.steps_per_epoch, config, rate),
        "speedups": [row.to_json() for row in rows] if memory else None,
    }
    for name, loaded in {"training data": train, **evaluation}.items():
        for sentence in loaded.lines():
            say(f"{name}: {sentence}")
        console.print(loaded.ledger.summary(name))
        if lost := rows_without_labels(loaded.ledger, config):
            say(f"note: {name}: {lost}")
    if beyond:
        say(beyond)
    show(result, plan, console)
    for line in short:
        say(line)
    if show_memory and not points:
        say(nothing_to_show(unknown or (DOCUMENT_BY_DOCUMENT if config.execution[0] == "off" else ON_CPU)))
    for line in curve_lines(points, free) if show_memory and points else ():
        say(line)
    if rows:
        say("speed-ups, tried out before the first step and seen to run in the second:")
        show_speedups(rows, console)
    return result


def policies_left_out(config: WholeConfig, memory: StepMemory) -> dict[str, No]:
    """Policies that the run could not take, by the shapes of its model; none where one is asked for."""
    assert memory.planned is not None

    def in_model(one: ActivationPolicy) -> No | None:
        there = one.policy != "selective" or memory.counted.cheap
        return None if there else No("it cannot be put into this model", expected=True)

    if asked_policy(config):
        return {}
    return left_out(memory.planned.decisions, memory.planned.context, in_model)


def memory_question(
    config: WholeConfig,
    plan: Plan,
    memory: StepMemory,
    out: Mapping[str, No],
    free: int | None,
    longest: int,
    share: float,
) -> Question:
    """What there is to choose from, by estimate. out: policies that are not."""
    asked = asked_policy(config)
    costs = relative_costs([asked[0]] if asked else [one for one in POLICIES if one not in out], config.use_peft)
    tokens = config.micro_batch_tokens
    assert tokens != "auto"

    def needed(policy: str, size: int) -> int:
        return memory.under(policy).needed(size, share)

    return question(free or 0, needed, costs, longest, tokens, most_useful(plan, useful_tokens(memory.model)))


def capacity_of(choice: Question, chosen: Setting, asked: int | str | None) -> Capacity:
    """What was chosen, and why."""
    if isinstance(asked, int):
        raised = " and the longest document need" if chosen.tokens > asked else ""
        return Capacity(chosen.tokens, f"as asked{raised}")
    whole = chosen == Setting("none", choice.most)
    return Capacity(chosen.tokens, "the default" if whole else "the fastest that the memory is estimated to take")


def too_long(longest: int, tokens: int, asked: tuple[str, str] | None, out: Mapping[str, No]) -> Capacity:
    """Where nothing fits. asked: the policy that a key asks for, and that key; out: policies that cannot be taken."""
    if asked:
        under, remedy = f"with `{asked[1]}`", "take that out, or set a smaller `max_length`"
    else:
        under = f"under any policy of activations{' that is left' if out else ''}"
        remedy = "set a smaller `max_length`"
    why = (
        f"the longest document has {longest:,} tokens, and the memory is estimated not to take it {under}: if it fails,"
        f" {remedy}"
    )
    return Capacity(tokens, why)


def _largest(plan: Plan, longest: int) -> int:
    """Tokens of the largest micro-batch there is."""
    if plan.ladder is None:
        return longest
    return max(rung for rung, count in plan.layout.used.items() if count)


def _execution(plan: Plan, capacity: Capacity | None, asked_by: str) -> str:
    if plan.ladder is None or capacity is None:
        return f"plain, as `{asked_by}` asks"
    return (
        f"packed, where the model can be packed (tried out before the first step): up to {plan.ladder.top:,} tokens a"
        f" micro-batch ({capacity.why_of(plan.ladder.top)})"
    )


def _updates(plan: Plan, config: WholeConfig, examples: "Examples", seed: int | None) -> dict[str, Any]:
    """Updates of an epoch here, in TRL with the same settings, and in TRL with its packing the other way."""
    rows = plan.all_rows if plan.packing is None else plan.packing.rows_unpacked
    world = config.gpus or 1
    without, packed = updates_per_epoch(rows, config, world), None
    if plan.packing is not None:
        packed = updates_per_epoch(plan.all_rows, config, world)
    elif config.max_length is not None and examples.per_example == 1:
        order = np.arange(len(examples))
        if seed is not None:
            order = np.random.default_rng(seed).permutation(len(examples))
        packed = updates_per_epoch(len(pack_rows(examples, order, "bfd", config.max_length)), config, world)
    return {
        "here": plan.steps_per_epoch,
        "trl": without if plan.packing is None else packed,
        "trl_without_packing": without,
        "trl_with_packing": packed,
        "trl_can_pack": examples.per_example == 1,
    }


def _time(tokens: float, config: WholeConfig, rate: float | None) -> dict[str, Any]:
    """tokens: real ones of all steps, each counted once where pairs share it, as the rate of a run counts them."""
    source = "given"
    if rate is None and config.output_dir is not None:
        source = str(Path(config.output_dir) / "summary.json")
        try:
            rate = float(json.loads(Path(source).read_text(encoding="utf-8"))["tokens_per_second"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError):  # no run, or a file that is none of ours
            rate = None
        if rate is not None and not 0 < rate < math.inf:
            rate = None
    if not rate:
        return {"tokens_per_second": None, "seconds": None, "source": None}
    return {"tokens_per_second": rate, "seconds": tokens / rate, "source": source}
