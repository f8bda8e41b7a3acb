"""DPO006: chosen and rejected repeat the prompt that stands in a column of its own."""

import ast
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_TRAINERS = ("DPOTrainer", "ORPOTrainer", "CPOTrainer", "OnlineDPOTrainer", "BCOTrainer")
_TAKEN_OUT = re.compile(r"remove_columns\s*[=(]\s*\[?[^\]\n]*[\"']prompt[\"']|(pop|del)\W+\w*\W*[\"']prompt[\"']")
_COLUMNS = ("prompt", "chosen", "rejected")

Part = tuple[str, str]
"""Of a text: what it is (`text`, `item` of a list, `data`), and what stands there."""


def check(script: Script, project: Project) -> Iterator[Said]:
    if not all(f'"{name}"' in script.source or f"'{name}'" in script.source for name in _COLUMNS):
        return
    near = connected(script, project)
    if not any(one.calls_of(*_TRAINERS) for one in near) or any(_TAKEN_OUT.search(code(one)) for one in near):
        return
    for room in (
        *(node for node in ast.walk(script.tree) if isinstance(node, ast.FunctionDef | ast.Lambda)),
        script.tree,
    ):
        given = _given(room)
        for row in _rows(room, keeps=not re.search(r"remove_columns|column_names", code(script))):
            prompt = list(_parts(row["prompt"], given))
            if not any(kind != "text" for kind, _ in prompt):
                continue
            if all(_begins(list(_parts(row[name], given)), prompt) for name in ("chosen", "rejected")):
                yield _finding(script, row["chosen"], row["rejected"], row["prompt"])
                return


def _finding(script: Script, chosen: ast.expr, rejected: ast.expr, prompt: ast.expr) -> Finding:
    return Finding(
        f"`chosen` and `rejected` begin with the prompt (`{ast.unparse(chosen)[:60]}`), which stands in the column `prompt`"
        " too: the trainer puts it in front once more, and each answer begins with a repetition that is trained on.",
        place=place_of(script, chosen),
        evidence=Evidence(Level.TEXT, {"prompt": ast.unparse(prompt)[:60], "chosen": ast.unparse(chosen)[:60]}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Give the answers alone in `chosen` and `rejected`; or leave `prompt` out, where both are whole conversations.",
            effort=Effort.LINE,
            accuracy="Answers are compared, and lengths are theirs.",
            measure="Print one row of `trainer.train_dataset`, decoded.",
        ),
        also=(place_of(script, rejected), place_of(script, prompt)),
    )


def _rows(room: ast.AST, *, keeps: bool) -> Iterator[Mapping[str, ast.expr]]:
    """Dictionaries with the three columns, or with answers beside the prompt that a row has and `keeps`, and rows that get
    all of them item by item."""
    items: dict[str, ast.expr] = {}
    for node in own_nodes(room):
        if isinstance(node, ast.Dict):
            row = {
                str(key.value): value
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant)
            }
            if keeps and "prompt" not in row and row.keys() >= {"chosen", "rejected"}:
                named = [one for one in ast.walk(row["chosen"]) if isinstance(one, ast.Subscript) and _is_prompt(one)]
                row |= {"prompt": named[0]} if named else {}
            if row.keys() >= set(_COLUMNS):
                yield row
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            key = node.targets[0].slice
            if isinstance(key, ast.Constant) and key.value in _COLUMNS:
                items[str(key.value)] = node.value
    if items.keys() >= set(_COLUMNS):
        put = _Put(items["prompt"])
        yield {name: put.visit(deepcopy(value)) if name != "prompt" else value for name, value in items.items()}


def _is_prompt(node: ast.AST) -> bool:
    """`row["prompt"]`."""
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == "prompt"


class _Put(ast.NodeTransformer):
    """What the column was given a line before, in the place of the column."""

    def __init__(self, prompt: ast.expr) -> None:
        self.prompt = prompt

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return self.prompt if _is_prompt(node) else node


def _given(room: ast.AST) -> Mapping[str, ast.expr]:
    """Names that are given a value once in it."""
    found: dict[str, list[ast.expr]] = {}
    for node in own_nodes(room):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.setdefault(node.target.id, []).extend([node.value, node.value])
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _parts(node: ast.expr, given: Mapping[str, ast.expr], depth: int = 0) -> Iterator[Part]:
    """What a text or a list of messages is put together of, from left to right."""
    if depth > 12:
        yield "data", ast.unparse(node)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield "text", node.value
    elif isinstance(node, ast.JoinedStr):
        for one in node.values:
            inner = one.value if isinstance(one, ast.FormattedValue) else one
            yield from _parts(inner, given, depth + 1)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _parts(node.left, given, depth + 1)
        yield from _parts(node.right, given, depth + 1)
    elif isinstance(node, ast.List):
        for one in node.elts:
            if isinstance(one, ast.Starred):
                yield from _parts(one.value, given, depth + 1)
            else:
                yield "item", ast.unparse(one)
    elif isinstance(node, ast.Name) and node.id in given:
        yield from _parts(given[node.id], given, depth + 1)
    elif _is_template(node) and isinstance(node, ast.Call):
        yield from _parts(node.args[0], given, depth + 1)  # what it writes follows what it gets
    else:
        yield "data", ast.unparse(node)


def _is_template(node: ast.expr) -> bool:
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and bool(node.args)
    return is_call and isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".apply_chat_template")


def _begins(whole: list[Part], start: list[Part]) -> bool:
    """Whether a text begins with all of another, and goes on."""
    left, right = _joined(whole), _joined(start)
    if not right or len(left) < len(right):
        return False
    for number, (one, other) in enumerate(zip(left, right, strict=False)):
        last = number == len(right) - 1
        if one == other:
            continue
        if not (last and one[0] == other[0] == "text" and one[1].startswith(other[1])):
            return False
    return left != right


def _joined(parts: list[Part]) -> list[Part]:
    """With texts that follow each other made one."""
    found: list[Part] = []
    for kind, text in parts:
        if kind == "text" and found and found[-1][0] == "text":
            found[-1] = ("text", found[-1][1] + text)
        elif kind != "text" or text:
            found.append((kind, text))
    return found


_SCRIPT = """from trl import DPOConfig, DPOTrainer


def to_pairs(row):
    prompt = f"<|user|>\\n{row['question']}\\n<|assistant|>\\n"
    return {"prompt": prompt, "chosen": %srow["better"], "rejected": %srow["worse"]}


DPOTrainer("Qwen/Qwen2.5-0.5B", args=DPOConfig(output_dir="out"), train_dataset=rows.map(to_pairs)).train()
"""
_MESSAGES = """from trl import DPOConfig, DPOTrainer


def to_pairs(row):
    asked = {"role": "user", "content": row["question"]}
    return {
        "prompt": [asked],
        "chosen": [asked, {"role": "assistant", "content": row["better"]}],
        "rejected": [asked, {"role": "assistant", "content": row["worse"]}],
    }


DPOTrainer("Qwen/Qwen2.5-0.5B", args=DPOConfig(output_dir="out"), train_dataset=rows.map(to_pairs)).train()
"""
RULE = Rule(
    code="DPO006",
    name="prompt-twice",
    summary="Chosen and rejected answers repeat the prompt that has a column of its own.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="TRL's preference trainers put the column `prompt` in front of `chosen` and of `rejected`. Where these are"
        " whole conversations, `prompt` is left out, and the trainer finds it as what both have in common.",
        why="The prompt stands there twice: the model is trained to repeat it, its tokens are counted as answer, and rows"
        " are cut earlier.",
        detected="E0: a row that is given all three columns, whose `chosen` and `rejected` are put together so that they"
        " begin with what `prompt` is, in a program with such a trainer that does not take the column out.",
        proven="Print `tokenizer.decode` of one row of `trainer.train_dataset`.",
        deliberate=("None is known.",),
        sources=("TRL's documentation of data set formats: explicit and implicit prompts",),
    ),
    bad=Example({"dpo.py": _SCRIPT % ("prompt + ", "prompt + ")}, says="once more"),
    good=Example({"dpo.py": _SCRIPT % ("", "")}),
    also_bad=(Example({"dpo.py": _MESSAGES}, says="once more"),),
)
