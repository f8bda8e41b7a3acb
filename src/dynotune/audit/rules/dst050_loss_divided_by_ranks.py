"""DST050: the loss is divided by the number of ranks, and the gradients are averaged over them as well."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import loops, place_of
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.divided_by_ranks import divided_by_ranks
from dynotune.audit.shapes.divided_by_ranks_elsewhere import divided_by_ranks_elsewhere

_CALLED = r"world(?:_size)?|num_processes|get_world_size\(\)|n_?gpus?|num_gpus"
_RANKS = rf"[\w.]*({_CALLED})\b(\(\))?"
_GIVEN = re.compile(
    r"(?:^[ \t]*|;[ \t]*)(\w{1,30}) = [\w.()\"'\[\]]{0,40}(?:get_world_size\(|\.num_processes\b|WORLD_SIZE\b)",
    re.MULTILINE,
)
"""A name for the number of ranks, whatever it is called."""
_FACTOR = r"(?:\(\s*[\w.]+\s*\*\s*|\(?\s*)"
"""What may stand before it in a divisor: `(accum * world)`. Without the bracket the loss is multiplied."""

_AVERAGED = re.compile(
    r"DistributedDataParallel\(|\bDDP\(|Accelerator\(|FullyShardedDataParallel\(|fully_shard\(|deepspeed\.init"
)
_BY_HAND = re.compile(
    r"\.grad\b.*all_reduce|all_reduce\([^)]*\.grad|backward_passes|ReduceOp\.SUM.*grad|register_comm_hook"
)

_REMEDY = Remedy(
    Risk.BEHAVIOURAL,
    "Take the division out: DDP, FSDP and DeepSpeed average already.",
    accuracy="The updates that were meant; the learning rate may have been tuned to the wrong ones.",
    measure="Compare the gradient's norm on one and on two ranks.",
)


def _is_something_else(name: str, source: str) -> bool:
    """The name is given what is no number of ranks on another line: `n = len(batch)`."""
    given = re.findall(rf"(?m)(?:^[ \t]*|;[ \t]*){re.escape(name)} = ([^\n]*)", source)
    return not all(re.search(rf"{_CALLED}|WORLD_SIZE|^1\b", one) for one in given)


def check(script: Script, project: Project) -> Iterator[Said]:
    found = list(_here(script))
    yield from found or divided_by_ranks_elsewhere(script, project)


def _here(script: Script) -> Iterator[Said]:
    """In the file that wraps its model."""
    if not _AVERAGED.search(script.source) or _BY_HAND.search(script.source):
        return
    lines = script.source.split("\n")
    given = [one for one in dict.fromkeys(_GIVEN.findall(script.source)) if not _is_something_else(one, script.source)]
    names = "|".join(map(re.escape, given))
    ranks = rf"(?<![\w.])[\w.]*?({_CALLED}{'|' + names if names else ''})\b(\(\))?"
    yield from _gradients(script, lines)
    found = list(_of_losses(script, lines, ranks))
    yield from found or _followed(script)


def _followed(script: Script) -> Iterator[Said]:
    """Where the division stands behind names, or in a function that a loop calls."""
    for node, by in divided_by_ranks(script):
        place = place_of(script, node)
        if not any(re.search(r"all_reduce\(\s*loss", line) for line in script.source.split("\n")):
            yield _finding(by, place, (), script)
        return


def _of_losses(script: Script, lines: list[str], ranks: str) -> Iterator[Said]:
    for loop in loops(script):
        for back in loop.has("backward"):
            if back.place.line < loop.place.line or back.place.line > loop.place.end_line:
                continue
            text = lines[back.place.line - 1]
            found = re.search(rf"loss\w*\s*/\s*(?:[\w.]+\s*/\s*)?{_FACTOR}({ranks})", text)
            line = back.place.line
            if found is None:
                named = re.search(r"(\w*loss\w*)\.backward\(|backward\((\w*loss\w*)", text)
                if named is None:
                    continue
                name = re.escape(named[1] or named[2])
                divides = re.compile(rf"^\s*{name}\s*(=(?![^#\n]*/\s*\([^()\n]*/)[^#\n]*/|/=)\s*{_FACTOR}({ranks})")
                line, found = _before(lines, loop.place.line, back.place.line, divides)
                summed = any(re.search(rf"all_reduce\(\s*{name}\b", one) for one in lines[loop.place.line : line])
                if found is None or summed:
                    continue
            by = re.search(ranks, found[0])
            assert by is not None
            yield _finding(by[0], Place(script.file, line, 1, line, len(lines[line - 1]) + 1), (back.place,), script)
            break


def _finding(by: str, place: Place, also: tuple[Place, ...], script: Script) -> Finding:
    return Finding(
        f"The loss is divided by `{by}` before `backward()`, and gradients are averaged over the ranks as well: they come"
        " out too small by the number of ranks.",
        place=place,
        evidence=Evidence(Level.TEXT, {"divided by": by}),
        stake=Stake(AtStake.RESULT),
        remedy=_REMEDY,
        also=also,
        deliberate="The loss is a sum that other code has multiplied by the number of ranks."
        if re.search(r"loss\w*(?: = [^\n/]{0,80})? ?\*=?\s*" + _RANKS, script.source)
        else "",
    )


_GRADIENTS = re.compile(rf"\.grad(?:\.data)?\s*(?:/=\s*|\.div_\(\s*|=\s*[\w.]*\.grad\s*/\s*)\(?({_RANKS})")


def _gradients(script: Script, lines: list[str]) -> Iterator[Said]:
    """Of each parameter, behind the backward pass that has averaged them."""
    if "all_reduce(" in script.source or not any(True for _ in loops(script)):
        return
    for number, line in enumerate(lines, 1):
        found = _GRADIENTS.search(line.partition("#")[0])
        if found is not None:
            yield Finding(
                f"Gradients are divided by `{found[1]}`, and they are averaged over the ranks already: they come out too"
                " small by the number of ranks.",
                place=Place(script.file, number, 1, number, len(line) + 1),
                evidence=Evidence(Level.TEXT, {"divided by": found[1]}),
                stake=Stake(AtStake.RESULT),
                remedy=_REMEDY,
            )
            return


def _before(lines: list[str], start: int, end: int, wanted: re.Pattern[str]) -> tuple[int, re.Match[str] | None]:
    for number in range(end, start, -1):
        found = wanted.search(lines[number - 1])
        if found is not None:
            return number, found
    return end, None


_LOOP = """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

model = DDP(model)
for batch in train_loader:
    loss = model(**batch).loss
%s    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
RULE = Rule(
    code="DST050",
    name="loss-divided-by-ranks",
    summary="The loss is divided by the number of ranks although gradients are averaged.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="Data-parallel wrappers average gradients over ranks. A loss that each rank divides by their number as"
        " well"
        " gives a gradient that is too small by that factor.",
        why="AdamW hides it, but for clipping and weight decay; SGD takes steps that are too short. With more GPUs"
        " it gets worse.",
        detected="E0: in a loop of a file that wraps its model, what `backward` is called on is divided by the"
        " number of ranks, also behind names and in functions that a loop calls, of other files too, or in the"
        " `compute_loss`"
        " of a `Trainer`; or by a count that was added up over all ranks, without their number as a factor;"
        " and no gradient is reduced by hand.",
        proven="The gradient's norm on one and on two ranks, over the same rows.",
        deliberate=(
            "Gradients are summed, by a communication hook or by hand in another file.",
            "The loss is a global sum.",
        ),
        sources=("PyTorch's documentation of `DistributedDataParallel`: gradients are averaged",),
    ),
    bad=Example({"train.py": _LOOP % "    loss = loss / dist.get_world_size()\n"}, says="too small"),
    good=Example({"train.py": _LOOP % ""}),
)
