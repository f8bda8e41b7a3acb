"""MSK057: rows that are trained on end with the beginning of an answer that nobody gives."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, together
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_WHOLE = re.compile(r"\w+\[['\"](messages|conversations?)['\"]\]")
_TRAINS = re.compile(r"SFTTrainer\(|\bTrainer\(|\.backward\(")


def check(script: Script, project: Project) -> Iterator[Said]:
    if "add_generation_prompt" not in script.source or not any(
        _TRAINS.search(code(one)) for one in together(script, project)
    ):
        return
    for node in ast.walk(script.tree):
        for key, value in _items(node):
            if key == "text" and _opens(value):
                yield Finding(
                    "Whole conversations are rendered with `add_generation_prompt=True` and trained on: each row ends with"
                    " the beginning of another answer, which the model learns to open and never to give.",
                    place=place_of(script, value),
                    evidence=Evidence(Level.TEXT, {"rendered": ast.unparse(value)[:80]}),
                    stake=Stake(AtStake.RESULT),
                    remedy=Remedy(
                        Risk.BEHAVIOURAL,
                        "Render training rows with `add_generation_prompt=False`; it is for prompts.",
                        effort=Effort.LINE,
                        accuracy="Rows end where answers end.",
                        measure="Print the last twenty characters of a row.",
                    ),
                )
                return


def _items(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        key = node.targets[0].slice
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, node.value


def _opens(value: ast.expr) -> bool:
    """A call of the template on a whole conversation, to which nothing is added."""
    if not isinstance(value, ast.Call) or not ast.unparse(value.func).endswith("apply_chat_template") or not value.args:
        return False
    words = {word.arg: ast.unparse(word.value) for word in value.keywords}
    whole = _WHOLE.fullmatch(ast.unparse(value.args[0])) is not None
    return whole and words.get("add_generation_prompt") == "True" and words.get("tokenize") == "False"


_SCRIPT = """from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct")


def render(row):
    return {"text": tokenizer.apply_chat_template(row["messages"], tokenize=False, add_generation_prompt=%s)}


SFTTrainer("Qwen/Qwen2.5-0.5B-Instruct", args=SFTConfig(output_dir="out"), train_dataset=rows.map(render)).train()
"""
RULE = Rule(
    code="MSK057",
    name="open-answer",
    summary="Rows that are trained on end with an answer's beginning.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="`add_generation_prompt=True` writes what stands before an answer. A whole conversation has its answers.",
        why="Each row then ends with the header of an answer that never comes, and what follows it is the end token.",
        detected="E0: a column `text` that is the template of a row's whole conversation with `add_generation_prompt=True`,"
        " in a program that trains.",
        proven="Print the end of a rendered row.",
        deliberate=("The conversations end with the user's turn.",),
        sources=("transformers' documentation of chat templates: what generation prompts are for",),
    ),
    bad=Example({"train.py": _SCRIPT % "True"}, says="beginning of another answer"),
    good=Example({"train.py": _SCRIPT % "False"}),
)
