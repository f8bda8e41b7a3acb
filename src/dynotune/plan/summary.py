"""The figures of a plan, each under one name: updates, micro-batches, the ladder, tokens, and what TRL would do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dynotune.plan.epoch import even_steps, ladder_of, layout_of
from dynotune.plan.pairs import PairSpans
from dynotune.plan.ranked import RankedLayout
from dynotune.say import amount

if TYPE_CHECKING:
    from dynotune.config.keys.batch import BatchConfig
    from dynotune.plan.plan import Plan

PLAIN = "plain: one document at a time, no padding"
PACKED = "packed: documents side by side, each seeing itself alone"

ENDLESS = 1_000_003
"""Steps of a plan that whoever watches leaves long before, as a bench or a profile does: a number that nobody asks for."""

DEFAULT_TOKENS = 16_384
"""Tokens of the largest micro-batch where nothing else is asked for, there is memory for it, and no layers so small that
more are of use (`dynotune.measure.busy`)."""

DEFAULT_EXAMPLES = 64
"""Examples a step for the figures of data that no run is planned for yet."""


def figures(plan: Plan) -> dict[str, Any]:
    """How the first epoch is executed; the others differ by chance only."""
    documents, _, steps = plan.first_epoch
    layout, labels = plan.layout, plan.spans.label_tokens[documents]
    real, processed = int(layout.real_tokens.sum()), int(layout.processed_tokens.sum())
    whole, computed = (
        int(plan.spans.sequence_lengths_of(documents).sum()),
        int(plan.spans.attention_of(documents)[0].sum()),
    )
    no_labels = int((np.add.reduceat(labels, steps[:-1]) == 0).sum())
    filled = int(layout.micro_batches.sum()) - (layout.empty if isinstance(layout, RankedLayout) else 0)
    return {
        "micro_batches_per_epoch": int(layout.micro_batches.sum()),
        "micro_batches_per_step": _spread(layout.micro_batches),
        "documents_per_micro_batch": len(documents) / filled,
        "documents_per_step": _spread(np.diff(steps)),
        "documents_lost": len(plan.first_units[0]) - int(layout.documents.sum()),
        "tokens_per_step": _spread(layout.real_tokens),
        "ladder": {str(rung): count for rung, count in layout.used.items()},
        "fill": layout.fill,
        **({"tokens_saved_by_sharing": computed - real} if computed > real else {}),
        **({"last_tokens_not_computed": whole - computed} if whole > computed else {}),
        "tokens_per_epoch": {
            "processed": processed,
            "real": real,
            "pad": processed - real,
            "label": int(labels.sum()),
            "masked": whole - int(labels.sum()),
        },
        "steps_without_label_tokens": no_labels,
        **({"ranks": of_ranks(layout, plan.world)} if isinstance(layout, RankedLayout) else {}),
    }


def of_ranks(layout: RankedLayout, world: int) -> dict[str, Any]:
    """How ranks share the steps of an epoch."""
    return {
        "world": world,
        "micro_batches_per_step": _spread(layout.a_rank),
        "empty_micro_batches": layout.empty,
        "imbalance": {"mean": float(layout.imbalance.mean()), "max": float(layout.imbalance.max())},
    }


def lines(plan: Plan) -> list[str]:
    """The plan in a few sentences, as a run says them."""
    content = plan.content()
    rows = "examples" if plan.packing is None else "bins"
    endless = content["steps"] == ENDLESS
    steps = "as many steps as are watched," if endless else amount(content["steps"], "step")
    epochs = "an epoch" if endless else f"{content['epochs']:.2f} epochs"
    said = [
        f"plan: {steps} of {content['examples_per_step']} {rows}"
        f" ({epochs} of {content['examples']:,}, {content['real_tokens_per_epoch']:,} tokens,"
        f" {content['label_tokens_per_epoch']:,} of them with loss)"
    ]
    if plan.world > 1:
        fixed = (
            "fixed by `global_batch_size`"
            if plan.fixed_batch
            else f"{content['examples_per_step'] // plan.world} a rank"
        )
        said[0] += f", over {plan.world} ranks ({fixed})"
    if plan.sets is not None:
        said.append(prompts_line(plan.sets))
    return said if plan.packing is None else [*said, *packing_lines(plan)]


def layout_line(plan: Plan) -> str:
    """How a packed plan is executed."""
    j = figures(plan)
    spread = j["ranks"]["micro_batches_per_step"] if plan.world > 1 else j["micro_batches_per_step"]
    least, most = spread["min"], spread["max"]
    if least == most:
        per_step = "1 micro-batch a step" if most == 1 else f"{most} micro-batches a step"
    else:
        mean = j["micro_batches_per_epoch"] / plan.steps_per_epoch / plan.world
        per_step = f"{mean:.2f} micro-batches a step ({least} to {most})"
    rows = "pairs" if isinstance(plan.spans, PairSpans) else "documents"
    saved = j.get("tokens_saved_by_sharing", 0)
    share = saved / (saved + j["tokens_per_epoch"]["real"])
    return (
        f"{per_step}{' on each rank' if plan.world > 1 else ''}, {j['documents_per_micro_batch']:.1f} {rows} in each, of"
        f" {', '.join(f'{int(rung):,}' for rung in j['ladder'])} tokens; fill {j['fill']:.1%} over an epoch"
        + (f"; {share:.1%} of the tokens of all sequences are computed with another's" if saved else "")
    )


def ranks_line(plan: Plan) -> str:
    """How evenly ranks share the steps."""
    ranks = figures(plan)["ranks"]
    mean, most = (ranks["imbalance"][which] for which in ("mean", "max"))
    empty = ranks["empty_micro_batches"]
    return (
        f"{plan.world} ranks: in the mean of an epoch's steps the most loaded one costs {mean - 1:.2%} more than an even"
        f" share (or than the longest document, where that is more), {most - 1:.2%} at most; {empty:,} of"
        f" {sum(plan.layout.micro_batches.tolist()):,} micro-batches are empty"
    )


def prompts_line(prompts: NDArray[np.int64]) -> str:
    """What `group_by_prompt` does to the content of steps. prompts: number of each pair's."""
    _, times = np.unique(prompts, return_counts=True)
    several = times[times > 1]
    if not len(several):
        return "note: `group_by_prompt: true` does nothing: no two pairs have the same prompt"
    return (
        f"behavioural: `group_by_prompt: true`: {several.sum():,} of {len(prompts):,} pairs, those of {len(several):,}"
        " prompts, stand beside another of their prompt: a step holds other pairs than in TRL, and more that are alike"
    )


def packing_lines(plan: Plan) -> list[str]:
    """What TRL's packing does to the updates, where it is on."""
    packing = plan.packing
    assert packing is not None
    without = math.ceil(packing.rows_unpacked / plan.examples_per_step)
    times = without / plan.steps_per_epoch
    said = [
        f"behavioural: `packing: true` ({packing.strategy}) makes {plan.all_rows:,} bins of up to"
        f" {packing.max_length:,} tokens out of {packing.rows_unpacked:,} rows, as TRL does: {plan.steps_per_epoch:,}"
        f" updates an epoch instead of {without:,}, {times:.1f} times fewer"
    ]
    if not packing.isolated:
        said.append("behavioural: `packing_strategy: wrapped`: examples that share a bin see each other")
    empty = figures(plan)["steps_without_label_tokens"]
    if empty:
        said.append(f"note: {empty:,} steps of the first epoch hold no label token: their bins were cut before any")
    return said


def updates_per_epoch(rows: int, config: BatchConfig, world: int = 1) -> int:
    """Of TRL and transformers on `world` processes, for so many rows: batches of all processes together, then groups of
    `gradient_accumulation_steps`.

    `global_batch_size`, which they lack, counts as the product that they would be given.
    """
    batch = config.global_batch_size or config.per_device_train_batch_size * world
    accumulation = 1 if config.global_batch_size else config.gradient_accumulation_steps
    batches = rows // batch if config.dataloader_drop_last else math.ceil(rows / batch)
    return math.ceil(batches / accumulation)


def fill_at_default(lengths: NDArray[np.int64]) -> dict[str, Any]:
    """What packing makes of documents of these lengths [documents], for a manifest: 64 examples a step in a random order
    (seed 0), micro-batches of up to 16,384 tokens.

    `compression_ratio`: documents in a bin of a whole epoch packed together, without steps.
    """
    order = np.random.default_rng(0).permutation(len(lengths))
    steps = even_steps(len(lengths), DEFAULT_EXAMPLES)
    ladder = ladder_of(lengths[order], steps, DEFAULT_TOKENS)
    layout = layout_of(lengths[order], steps, ladder)
    return {
        "examples_per_step": DEFAULT_EXAMPLES,
        "micro_batch_tokens": ladder.top,
        "ladder": list(ladder.rungs),
        "fill": layout.fill,
        "documents_per_micro_batch": len(lengths) / int(layout.micro_batches.sum()),
        "compression_ratio": len(lengths) / max(1, math.ceil(int(lengths.sum()) / ladder.top)),
    }


def _spread(values: NDArray[np.int64]) -> dict[str, Any]:
    return {"min": int(values.min()), "median": float(np.median(values)), "max": int(values.max())}
