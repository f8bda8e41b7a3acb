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
_MADE = re.compile(r"[\"'](?:chosen|rejected)[\"'](?:\]\s*=[^=]|\s*:)|(?:chosen|rejected)=")
"""Answers that are given anew."""

_COLUMNS = ("prompt", "chosen", "rejected")

Part = tuple[str, str]
"""Of a text: what it is (`text`, `item` of a list, `data`), and what stands there."""


def check(script: Script, project: Project) -> Iterator[Said]:
    if "prompt" not in script.source or "chosen" not in script.source:
        return
    near = connected(script, project)
    if not any(one.calls_of(*_TRAINERS) for one in near) or any(_TAKEN_OUT.search(code(one)) for one in near):
        return
    made = any(_MADE.search(code(one)) for one in near)
    written = _functions(script)
    for room in (
        *(node for node in ast.walk(script.tree) if isinstance(node, ast.FunctionDef | ast.Lambda)),
        script.tree,
    ):
        given = {**written, **_given(room)}
        keeps = not re.search(r"remove_columns|column_names", code(script))
        for row in (*_rows(room, keeps=keeps), *(_cut_from_answers(room) if not made and keeps else ())):
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
        row = _named(node)
        if row:
            if keeps and "prompt" not in row and row.keys() >= {"chosen", "rejected"}:
                named = [one for one in ast.walk(row["chosen"]) if isinstance(one, ast.Subscript) and _is_prompt(one)]
                row |= {"prompt": named[0]} if named else {}
            if row.keys() >= set(_COLUMNS):
                yield row
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            key = node.targets[0].slice
            if isinstance(key, ast.Constant) and key.value in _COLUMNS:
                items[str(key.value)] = node.value
        elif (name := _appended_to(node)) in _COLUMNS and isinstance(node, ast.Call):
            items[name] = node.args[0]
    if items.keys() >= set(_COLUMNS):
        put = _Put(items["prompt"])
        yield {name: put.visit(deepcopy(value)) if name != "prompt" else value for name, value in items.items()}


def _named(node: ast.AST) -> dict[str, ast.expr]:
    """`{"prompt": ...}`, `dict(prompt=...)`."""
    if isinstance(node, ast.Dict):
        return {
            str(key.value): value
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant)
        }
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        return {word.arg: word.value for word in node.keywords if word.arg is not None}
    return {}


def _appended_to(node: ast.AST) -> str:
    """The column of `rows["chosen"].append(text)`."""
    func = node.func if isinstance(node, ast.Call) and len(node.args) == 1 else None
    if not isinstance(func, ast.Attribute) or func.attr != "append" or not isinstance(func.value, ast.Subscript):
        return ""
    key = func.value.slice
    return str(key.value) if isinstance(key, ast.Constant) else ""


def _cut_from_answers(room: ast.AST) -> Iterator[Mapping[str, ast.expr]]:
    """A prompt that is made of the chosen conversation, in a program that leaves the answers as they are."""
    for node in own_nodes(room):
        given = _named(node).get("prompt")
        if isinstance(node, ast.Assign) and _is_prompt(node.targets[0]):
            given = node.value
        found = _CUT.match(ast.unparse(given)) if given is not None else None
        if found is not None and isinstance(given, ast.Subscript) and found[1].endswith("['chosen']"):
            yield {"prompt": given, "chosen": given.value, "rejected": given.value}


def _functions(script: Script) -> Mapping[str, ast.expr]:
    """What functions of the file return, each by its name with brackets, as a lambda."""
    found: dict[str, ast.expr] = {}
    for node in ast.walk(script.tree):
        if isinstance(node, ast.FunctionDef):
            returned = [one.value for one in own_nodes(node) if isinstance(one, ast.Return) and one.value is not None]
            if len(returned) == 1:
                value = _PutNames(_given(node)).visit(deepcopy(returned[0]))
                found[f"{node.name}()"] = ast.Lambda(node.args, value)
        elif (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Lambda)
            and isinstance(node.targets[0], ast.Name)
        ):
            found[f"{node.targets[0].id}()"] = node.value
    return found


class _PutNames(ast.NodeTransformer):
    """Values in the places of their names."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.values.get(node.id, node)


def _called(node: ast.Call, given: Mapping[str, ast.expr]) -> ast.expr | None:
    """What a function of the file returns for these arguments."""
    name = ast.unparse(node.func).rpartition("self.")[2]
    function = given.get(f"{name}()")
    if not isinstance(function, ast.Lambda) or any(isinstance(one, ast.Starred) for one in node.args):
        return None
    names = [one.arg for one in function.args.args if one.arg != "self"]
    values = dict(zip(names, node.args, strict=False)) | {word.arg: word.value for word in node.keywords if word.arg}
    return _PutNames(values).visit(deepcopy(function.body))  # type: ignore[no-any-return]


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
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "append"
            and node.args
        ):
            if isinstance(node.func.value, ast.Name):
                found.setdefault(node.func.value.id, []).append(node.args[0])
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.setdefault(node.target.id, []).extend([node.value, node.value])
    filled = {name: [one for one in values if not _is_empty(one)] for name, values in found.items()}
    return {name: values[0] for name, values in filled.items() if len(values) == 1}


def _is_empty(node: ast.expr) -> bool:
    """`[]`, which is filled by what is appended."""
    return isinstance(node, ast.List) and not node.elts


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
    elif isinstance(node, ast.ListComp) and len(node.generators) == 1 and not node.generators[0].ifs:
        yield from _parts(node.elt, {**given, **_each(node.generators[0])}, depth + 1)
    elif isinstance(node, ast.Call) and (returned := _called(node, given)) is not None:
        yield from _parts(returned, given, depth + 1)
    elif _is_template(node) and isinstance(node, ast.Call):
        yield from _parts(node.args[0], given, depth + 1)  # what it writes follows what it gets
    else:
        yield "data", ast.unparse(node)


def _each(rounds: ast.comprehension) -> Mapping[str, ast.expr]:
    """What the names of a comprehension stand for: one of what they go through."""
    zipped = isinstance(rounds.iter, ast.Call) and ast.unparse(rounds.iter.func) == "zip"
    targets = rounds.target.elts if isinstance(rounds.target, ast.Tuple) else [rounds.target]
    sources = rounds.iter.args if zipped and isinstance(rounds.iter, ast.Call) else [rounds.iter]
    if len(targets) != len(sources):
        return {}
    return {
        target.id: ast.Subscript(source, ast.Constant("each"), ast.Load())
        for target, source in zip(targets, sources, strict=True)
        if isinstance(target, ast.Name)
    }


def _is_template(node: ast.expr) -> bool:
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and bool(node.args)
    return is_call and isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".apply_chat_template")


def _begins(whole: list[Part], start: list[Part]) -> bool:
    """Whether a text begins with all of another, and goes on."""
    left, right = _joined(whole), _joined(start)
    if not right or len(left) < len(right):
        return False
    if len(left) == len(right) == 1 and _is_cut(right[0][1], left[0][1]):
        return True
    for number, (one, other) in enumerate(zip(left, right, strict=False)):
        last = number == len(right) - 1
        if one == other:
            continue
        if not (last and one[0] == other[0] == "text" and one[1].startswith(other[1])):
            return False
    return left != right


_CUT = re.compile(r"^(.*)\[:(?:-1|1|2)\]$")


def _is_cut(prompt: str, answer: str) -> bool:
    """`row["chosen"][:-1]` of `row["chosen"]`; of the rejected answer, what is asked is the same."""
    found = _CUT.match(prompt)
    return found is not None and found[1] in (answer, answer.replace("rejected", "chosen"))


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
