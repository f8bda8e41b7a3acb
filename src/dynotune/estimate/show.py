"""The plan of a run on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynotune.estimate.memory import ELSEWHERE
from dynotune.measure.memory import GIB
from dynotune.say import sayer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from dynotune.plan.plan import Plan


def show(result: dict[str, Any], plan: Plan, console: Console) -> None:
    """Print what `plan_run` found."""
    say = sayer(console)
    for line in plan.summary():
        say(line)
    if result["memory"]["device"].endswith(f"({ELSEWHERE})"):
        say(
            "planned for a GPU that computes in bfloat16, and there is none here: `--use_cpu true` plans for this machine"
        )
    say(f"execution: {result['execution']}")
    if plan.ladder is not None:
        say(f"layout: {plan.layout_summary()}")
        console.print(_ladder(result["plan"]["layout"]["ladder"]))
    console.print(_tokens(result))
    if plan.world > 1:
        say(plan.ranks_summary())
    say(f"documents lost: {result['plan']['layout']['documents_lost']}")
    say(_updates(result["updates"]))
    memory = result["memory"]
    if memory["parts"] is None:
        say(f"memory: not known: {memory['unknown']}")
    else:
        console.print(_memory(memory))
    time = result["time"]
    if time["seconds"] is None:
        say("time: not known: give `--rate` (real tokens a second), or the `output_dir` of an earlier run")
    else:
        say(f"time: {_clock(time['seconds'])} at {time['tokens_per_second']:,.0f} real tokens/s ({time['source']})")


def _table(title: str, *columns: str) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if 0 < i < 3 else "left")
    return table


def _ladder(used: dict[str, int]) -> Table:
    table = _table("ladder, an epoch", "tokens", "micro-batches", "share")
    total = sum(used.values())
    for rung, count in used.items():
        table.add_row(f"{int(rung):,}", f"{count:,}", f"{count / total:.1%}")
    return table


def _tokens(result: dict[str, Any]) -> Table:
    """Label and masked tokens, and what they are shares of, are those of whole sequences, whatever of them is computed."""
    table, t = _table("tokens, an epoch", "", "tokens", "share", ""), result["tokens"]
    saved, last, of = t["saved_by_sharing"], t["last"], "real"
    if saved or last:
        t, of = t | {"sequences": t["real"] + saved + last}, "sequences"
    for name, key, whole, what in (
        ("read", "read", None, "in rows that became tokens"),
        ("truncated", "truncated", "read", "cut by `max_length`"),
        ("in skipped rows", "skipped", "read", "of rows that are left out"),
        *([("sequences", "sequences", None, "of documents, whole")] if saved or last else []),
        ("real", "real", None, "of documents, executed"),
        *([("saved by sharing", "saved_by_sharing", of, "computed once for several sequences")] if saved else []),
        *([("last tokens", "last", of, "not computed: they predict nothing")] if last else []),
        ("label", "label", of, "with loss"),
        ("masked", "masked", of, "without loss: prompts and first tokens"),
        ("pad", "pad", "processed", "between documents and the end of a micro-batch"),
        ("processed", "processed", None, "real and pad"),
    ):
        share = f"{t[key] / t[whole]:.1%} of {whole}" if whole and t[whole] else ""
        table.add_row(name, f"{t[key]:,}", share, what)
    return table


def _memory(memory: dict[str, Any]) -> Table:
    table = _table(f"memory of a step on {memory['device']}", "", "GiB", "certainty", "how")
    for part in memory["parts"]:
        table.add_row(part["name"], f"{part['bytes'] / GIB:.2f}", part["certainty"], part["how"])
    total = sum(part["bytes"] for part in memory["parts"])
    there = memory["device_bytes"]
    table.add_row("together", f"{total / GIB:.2f}", "", "" if there is None else _fits(total, there))
    return table


def _fits(needed: int, there: int) -> str:
    if needed <= there:
        return f"of {there / GIB:.2f} GiB"
    return f"more than the {there / GIB:.2f} GiB there are"


def _updates(updates: dict[str, Any]) -> str:
    said = f"updates an epoch: {updates['here']:,} here, {updates['trl']:,} in TRL with the same settings"
    without, packed = updates["trl_without_packing"], updates["trl_with_packing"]
    if not updates["trl_can_pack"]:
        return said
    if packed is None:
        return f"{said}; TRL's `packing: true` needs a `max_length`"
    times = f"{without / packed:.1f} times fewer"
    if updates["here"] == packed != without:
        return f"{said}; without `packing: true` {without:,}: {times} with it"
    return f"{said}; TRL's `packing: true` would make {packed:,}, {times}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{seconds:.1f} s"
