"""A schedule is made for as many steps as there are epochs and advanced at every batch, or the other way round."""

import ast
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.ranks import Values, values_of
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import is_scheduler, loops, place_of
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.shapes.counted_in_micro_batches import IN_BATCHES, total_of


def counted_in_epochs(script: Script) -> Iterator[Said]:
    if "LightningModule" in script.source or "ched" not in script.source:
        return
    rounds = {ast.unparse(stop): node for node, stop in epochs(script)}
    inside = loops(script)
    if not rounds or not inside:
        return
    values = values_of(script)
    for call in script.calls:
        if call.name.rpartition(".")[2] != "step" or not is_scheduler(call) or len(call.arguments):
            continue
        if any(one.kind == "if" and ("%" not in one.name or "len(" in one.name) for one in call.around):
            continue  # perhaps at the last batch alone
        name = call.on.rpartition(".")[2]
        made, total = total_of(name, values)
        made, total = (made, total) if made is not None else _milestones(name, values, rounds)
        if made is None or not total:
            continue
        deepest = next((one for one in inside if one.place.line <= call.place.line <= one.place.end_line), None)
        epoch = next((node for node in rounds.values() if deepest and node.lineno == deepest.place.line), None)
        if deepest is not None and epoch is None and call.in_training_loop and _is_count(total, rounds, values):
            yield _finding(script, made, call, total, "once an epoch", "at every batch")
            return
        if deepest is None and IN_BATCHES.search(total) and _between(call, rounds):
            yield _finding(script, made, call, total, "at every batch", "once an epoch")
            return


def _milestones(name: str, values: Values, rounds: Mapping[str, ast.For]) -> tuple[ast.Call | None, str]:
    """Where `MultiStepLR` or `StepLR` is made with numbers that are all epochs of the run, and the run's number of them."""
    made = values.get(name, ())
    if len(made) != 1 or not isinstance(made[0], ast.Call):
        return None, ""
    call, func = made[0], ast.unparse(made[0].func).rpartition(".")[2]
    key = {"MultiStepLR": "milestones", "StepLR": "step_size"}.get(func)
    held = next((one.value for one in call.keywords if one.arg == key), call.args[1] if len(call.args) > 1 else None)
    try:
        numbers = ast.literal_eval(held) if key and held is not None else None
    except (ValueError, TypeError, SyntaxError):
        return None, ""
    steps = numbers if isinstance(numbers, list | tuple) else [numbers]
    for text in rounds:
        given = values.get(text, ())
        count = text if text.isdigit() else ast.unparse(given[0]) if len(given) == 1 else ""
        whole = all(type(one) is int and 0 < one < int(count) for one in steps) if count.isdigit() else False
        if whole and steps and int(count) <= _MOST_EPOCHS:
            return call, text
    return None, ""


_MOST_EPOCHS = 1_000
"""Numbers above which may be of steps."""


def _is_count(total: str, rounds: dict[str, ast.For], values: Values) -> bool:
    """It is the number of epochs itself, by its name or as the number that the name stands for."""
    bare = total.strip("()")
    followed = {ast.unparse(values[one][0]) for one in rounds if len(values.get(one, ())) == 1}
    return (
        bare in rounds
        or (bare in followed and not bare.isdigit())
        or (bare.isdigit() and bare in followed | set(rounds))
    )


def _between(call: Call, rounds: dict[str, ast.For]) -> bool:
    """In a loop over epochs, and in no other."""
    turns = [one for one in call.around if one.kind in ("for", "while")]
    held = [node for node in rounds.values() if node.lineno <= call.place.line <= (node.end_lineno or node.lineno)]
    return len(turns) == 1 and len(held) == 1 and not any(one.kind == "if" for one in call.around)


def epochs(script: Script) -> Iterator[tuple[ast.For, ast.expr]]:
    """Loops over a number of epochs, with the number."""
    for node in ast.walk(script.tree):
        if (
            not isinstance(node, ast.For)
            or "epoch" not in f"{ast.unparse(node.target)}{ast.unparse(node.iter)}".lower()
        ):
            continue
        source = node.iter
        while (
            isinstance(source, ast.Call)
            and source.args
            and ast.unparse(source.func).rpartition(".")[2] in ("tqdm", "track")
        ):
            source = source.args[0]
        if isinstance(source, ast.Call) and ast.unparse(source.func) in ("range", "trange") and source.args:
            yield node, source.args[0] if len(source.args) == 1 else source.args[1]


def _finding(script: Script, made: ast.Call, call: Call, total: str, counted: str, advanced: str) -> Finding:
    early = advanced == "at every batch"
    then = (
        "after so many batches it is through, and a cosine goes up and down again"
        if early
        else "at the end of the run it has hardly begun"
    )
    return Finding(
        f"`{call.on}` is made for `{total[:60]}` steps, to be advanced {counted}, and `{call.on}.step()` runs {advanced}:"
        f" {then}.",
        place=call.place,
        evidence=Evidence(Level.TEXT, {"made for": total[:80], "advanced": advanced}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Advance it after the loop over batches, or make it for epochs x batches."
            if early
            else "Advance it after each update, or make it for the number of epochs.",
            accuracy="The schedule that was meant.",
            measure="Print the learning rate of the last step.",
        ),
        also=(place_of(script, made),),
    )
