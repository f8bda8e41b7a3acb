"""Prompts that a script takes out of the loss, and that come back into it: a collator makes labels anew, or rows are padded
on the side that the mask is measured from."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_OUT = re.compile(r"-100\b|IGNORE\w*")
_ANEW = "DataCollatorForLanguageModeling"
_OTHERS = re.compile(
    r"DataCollatorForSeq2Seq\(|default_data_collator|DataCollatorWithPadding\(|CompletionOnly|DataCollatorForTokenClassification"
    r"|class \w+\([\w.]*DataCollator|def \w*collat\w*\(|group_texts"
)


def masks_that_do_not_last(script: Script, project: Project) -> Iterator[Said]:
    yield from _made_anew(script, project)
    yield from _padded_before(script, project)


def _made_anew(script: Script, project: Project) -> Iterator[Said]:
    calls = [
        call
        for call in script.calls_of(_ANEW)
        if (mlm := call.arguments.get("mlm") or call.arguments.get("1")) is not None and mlm.value is False
    ]
    trainers = [call for call in script.calls_of("Trainer", "SFTTrainer") if "data_collator" in call.arguments]
    if not calls or not trainers:
        return
    program = connected(script, project)
    if any(_OTHERS.search(code(one)) for one in program):
        return
    masked = next(((one, node) for one in program for node in _masked(one)), None)
    if masked is None:
        return
    home, node = masked
    yield Finding(
        f"`{_ANEW}` makes labels of all ids anew, whatever the rows have: what `{ast.unparse(node)[:60]}` takes out of the"
        " loss comes back, and the loss is on the prompt as well.",
        place=calls[0].place,
        evidence=Evidence(Level.TEXT, {"collator": _ANEW, "labels": ast.unparse(node)[:80]}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Use `DataCollatorForSeq2Seq(tokenizer, padding=True)`, which pads the labels that rows have with -100.",
            effort=Effort.LINE,
            accuracy="Loss on answers alone, as the script means.",
            measure="Print the labels of one batch of the trainer's loader.",
        ),
        also=(place_of(home, node),),
    )


def _masked(script: Script) -> Iterator[ast.expr]:
    """What rows get for labels, with a part out of the loss."""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "labels":
                    yield from _is_out(value, script)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            key = node.targets[0].slice
            if isinstance(key, ast.Constant) and key.value == "labels":
                yield from _is_out(node.value, script)


def _is_out(value: ast.expr, script: Script) -> Iterator[ast.expr]:
    """Itself, or what the name was given."""
    if _OUT.search(ast.unparse(value)):
        if not _is_of_padding(ast.unparse(value)):
            yield value
    elif isinstance(value, ast.Name):
        for node in ast.walk(script.tree):
            named = isinstance(node, ast.Assign) and re.match(rf"{value.id}\b", ast.unparse(node.targets[0]))
            if not named or not isinstance(node, ast.Assign) or _is_of_padding(ast.unparse(node)):
                continue
            if _OUT.search(ast.unparse(node.value)):
                yield node.value


def _is_of_padding(text: str) -> bool:
    """Padding alone goes out of the loss, which the collator leaves out too."""
    return bool(re.search(r"\bpad\b|pad_|attention_mask", text)) and not re.search(
        r"prompt|instruct|source|question|user|\] \* |len\(", text
    )


_LEFT = re.compile(r"padding_side\s*=\s*[\"']left[\"']")
_RIGHT = re.compile(r"padding_side\s*=\s*[\"']right[\"']")
_LENGTH = re.compile(r"len\([\w.]*tok\w*\(|len\(\w*prompt\w*|len\(\w+\[['\"]input_ids")


def _padded_before(script: Script, project: Project) -> Iterator[Said]:
    """`labels[:n] = -100`, with the length of the prompt, on a row that was padded on the left."""
    if "padding" not in script.source or not _OUT.search(script.source):
        return
    sources = [code(one) for one in connected(script, project)]
    if not any(_LEFT.search(_before_generating(one)) for one in connected(script, project)) or any(
        _RIGHT.search(one) for one in sources
    ):
        return
    for function in (node for node in ast.walk(script.tree) if isinstance(node, ast.FunctionDef)):
        text = ast.unparse(function)
        fixed = [node for node in own_nodes(function) if _pads(node, "max_length")]
        padded = fixed or [node for node in own_nodes(function) if _pads(node, True, "longest")]
        lengths = {name for name, value in _assigned(function) if _LENGTH.match(value)}
        if (
            not padded
            or not lengths
            or re.search(r"attention_mask\w*['\"\]]*(?:\[\w+\])?\.(?:sum|argmax)|count\(|nonzero", text)
        ):
            continue
        for node in own_nodes(function):
            if isinstance(node, ast.Assign) and _from_the_start(node, lengths) and (fixed or _of_a_batch(node)):
                yield _finding(script, node, (place_of(script, padded[0]),))
                return


def _before_generating(script: Script) -> str:
    """The code without functions that generate, and without what stands behind training: a tokenizer that is turned to the
    left there was not when rows were made."""
    lines = code(script).split("\n")
    for node in ast.walk(script.tree) if "generate(" in script.source else ():
        if isinstance(node, ast.FunctionDef) and ".generate(" in (text := ast.unparse(node)) and ".train(" not in text:
            for number in range(node.lineno - 1, min(node.end_lineno or node.lineno, len(lines))):
                lines[number] = ""
    trained = next((number for number, line in enumerate(lines) if re.search(r"\.train\(\s*(?:resume|\))", line)), None)
    if trained is not None and any(".generate(" in line for line in lines[trained:]):
        lines = lines[: trained + 1]
    return "\n".join(lines)


def _of_a_batch(node: ast.Assign) -> bool:
    """`labels[i, :n]`: one row of several, which were padded to the longest of them."""
    return re.search(r"\[\w+(?:, |\]\[)0?:\w+\]$", ast.unparse(node.targets[0])) is not None


def _pads(node: ast.AST, *how: object) -> bool:
    if not isinstance(node, ast.Call) or not re.search(r"tok\w*$", ast.unparse(node.func)):
        return False
    padding = next((word.value for word in node.keywords if word.arg == "padding"), None)
    return isinstance(padding, ast.Constant) and padding.value in how


def _assigned(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    for node in own_nodes(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, ast.unparse(node.value)


def _from_the_start(node: ast.Assign, lengths: set[str]) -> bool:
    target, value = ast.unparse(node.targets[0]), ast.unparse(node.value)
    if not _OUT.search(value) or "label" not in target:
        return False
    return any(
        re.search(rf"\[(?:0)?:{name}\]$|\[\w+, (?:0)?:{name}\]$", target) or re.match(rf"\[.*\] \* {name} \+ ", value)
        for name in lengths
    )


def _finding(script: Script, node: ast.Assign, also: Sequence[Place]) -> Finding:
    return Finding(
        f"`{ast.unparse(node)[:60]}` counts the prompt from the row's start, and rows are padded on the left: it takes"
        " padding out of the loss, and the prompt stays in.",
        place=place_of(script, node),
        evidence=Evidence(Level.TEXT, {"padding_side": "left", "masked": ast.unparse(node)[:80]}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            'Pad on the right for training (`tokenizer.padding_side = "right"`), or pad in the collator.',
            effort=Effort.LINE,
            accuracy="Loss on answers alone, as the script means.",
            measure="Print the labels of one row that are not -100, decoded.",
        ),
        also=tuple(also),
    )
