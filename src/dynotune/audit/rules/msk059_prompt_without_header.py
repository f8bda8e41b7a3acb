"""MSK059: a prompt is rendered without the header that an answer follows."""

import ast
import re
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.rules.msk055_marks_that_never_come import MODELS

_HEADED = ("ChatML", "Llama 3", "Gemma", "Phi 3 and Zephyr")
"""Templates that put a header in front of an answer; Mistral's and Llama 2's do not."""

_ANSWERS = ("chosen", "rejected", "completion", "response", "answer", "output")
_WRITES_ONE = re.compile(r"assistant|start_of_turn|add_generation_prompt|apply_chat_template")


def check(script: Script, project: Project) -> Iterator[Said]:
    if "apply_chat_template" not in script.source or not _has_headers(script, project):
        return
    of_file = {name: value for name, value in _given(script.tree).items() if isinstance(value, ast.Constant)}
    for room in (*(one for one in ast.walk(script.tree) if isinstance(one, ast.FunctionDef | ast.Lambda)), script.tree):
        given = {**of_file, **_given(room)}
        for render, answer, how in (*_columns(room, given), *_joined(room, given)):
            yield _finding(script, render, answer, how)
            return


def _has_headers(script: Script, project: Project) -> bool:
    """Every model that the program names by a name that is known has a template with a header."""
    program = connected(script, project)
    files = {one.file for one in program}
    names = [str(job.get("model_name_or_path")) for job in project.jobs if files & set(job.files)]
    names += [
        node.value
        for one in program
        for node in ast.walk(one.tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and "/" in node.value
        and len(node.value) < 100
    ]
    found = {kind for name in names for pattern, kind in MODELS if re.search(pattern, name.rpartition("/")[2].lower())}
    return bool(found) and found <= set(_HEADED) and not any("chat_template =" in one.source for one in program)


def _given(room: ast.AST) -> Mapping[str, ast.expr]:
    """Names that are given a value once in it."""
    found: dict[str, list[ast.expr]] = {}
    for node in own_nodes(room):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            found.setdefault(ast.unparse(node.targets[0]), []).append(node.value)
        elif isinstance(node, ast.AugAssign):
            found.setdefault(ast.unparse(node.target), []).extend([node.value, node.value])
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _rendered(node: ast.expr, given: Mapping[str, ast.expr]) -> ast.Call | None:
    """The call that renders a prompt to text and says nothing of a header, which this is or is a name of."""
    value = given.get(ast.unparse(node), node)
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return None
    if value.func.attr != "apply_chat_template" or len(value.args) > 1:
        return None
    words = {word.arg: word.value for word in value.keywords}
    text = words.get("tokenize")
    header = words.get("add_generation_prompt")
    none = header is None or (isinstance(header, ast.Constant) and header.value is False)
    if None in words or {"continue_final_message", "chat_template"} & words.keys() or not none:
        return None
    return value if isinstance(text, ast.Constant) and text.value is False else None


def _columns(room: ast.AST, given: Mapping[str, ast.expr]) -> Iterator[tuple[ast.Call, ast.expr, str]]:
    """A row whose `prompt` is rendered and whose answers are the data's own text."""
    rows: list[dict[str, ast.expr]] = [{}]
    for node in own_nodes(room):
        if isinstance(node, ast.Dict):
            rows.append(
                {
                    str(key.value): value
                    for key, value in zip(node.keys, node.values, strict=True)
                    if isinstance(key, ast.Constant)
                }
            )
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            key = node.targets[0].slice
            if isinstance(key, ast.Constant):
                rows[0][str(key.value)] = node.value
    for row in rows:
        render = _rendered(row["prompt"], given) if "prompt" in row else None
        for name in ("chosen", "completion"):
            if render is not None and name in row and _is_plain(row[name], given):
                yield render, row[name], f"the column `{name}` follows it"


def _is_plain(node: ast.expr, given: Mapping[str, ast.expr]) -> bool:
    """Text of the row, to which no header is added."""
    value = given.get(ast.unparse(node), node)
    text = ast.unparse(value)
    takes = any(
        isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Constant) and isinstance(one.slice.value, str)
        for one in ast.walk(value)
    )
    is_text = isinstance(value, ast.Subscript | ast.BinOp | ast.JoinedStr) or ".strip()" in text
    return takes and is_text and not _brings_a_header(value, given)


def _brings_a_header(value: ast.expr, given: Mapping[str, ast.expr]) -> bool:
    """It stands in it, or in text that it has by name (`HEADER + row["better"]`)."""
    named = [given[one.id] for one in ast.walk(value) if isinstance(one, ast.Name) and one.id in given]
    texts = [value, *(one for one in named if isinstance(one, ast.Constant))]
    return any(_WRITES_ONE.search(ast.unparse(one)) for one in texts)


def _joined(room: ast.AST, given: Mapping[str, ast.expr]) -> Iterator[tuple[ast.Call, ast.expr, str]]:
    """`prompt + row["answer"]`, and the same in an f-string."""
    shown = {inner for node in own_nodes(room) if _shows(node) for inner in ast.walk(node)}
    for node in (one for one in own_nodes(room) if one not in shown):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts: list[ast.expr] = [node.left, node.right]
        elif isinstance(node, ast.JoinedStr):
            held = [one for one in node.values if not (isinstance(one, ast.Constant) and one.value == "")]
            parts = [one.value for one in held if isinstance(one, ast.FormattedValue)]
            if len(parts) < 2 or any(isinstance(one, ast.Constant) for one in held[:2]):
                continue
        else:
            continue
        prompt, follows = (_as_text(one, given) for one in parts[:2])
        render = _rendered(prompt, given)
        if render is not None and _is_answer(follows, given):
            yield render, follows, f"`{ast.unparse(follows)[:40]}` follows it"


_TOKENISED = re.compile(r"^[\w.]*tok\w*(?:\.encode)?$")


def _as_text(node: ast.expr, given: Mapping[str, ast.expr]) -> ast.expr:
    """What was tokenised, where these are its ids: `tok(prompt)["input_ids"]`, and a name of it."""
    value = given.get(ast.unparse(node), node)
    while isinstance(value, ast.Subscript | ast.Attribute) and isinstance(value.value, ast.Call):
        value = value.value
    if isinstance(value, ast.BinOp):  # `tok(answer)["input_ids"] + [tok.eos_token_id]`
        return _as_text(value.left, given) if isinstance(value.right, ast.List) else node
    is_of_text = isinstance(value, ast.Call) and value.args and _TOKENISED.match(ast.unparse(value.func))
    return value.args[0] if is_of_text and isinstance(value, ast.Call) else node


def _shows(node: ast.AST) -> bool:
    """`print(...)` and the like, whose text nobody trains on."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in (
        "print",
        "info",
        "debug",
        "write",
    )


def _is_answer(node: ast.expr, given: Mapping[str, ast.expr]) -> bool:
    value = given.get(ast.unparse(node), node)
    if _brings_a_header(value, given):
        return False
    return any(
        isinstance(one, ast.Subscript)
        and isinstance(one.slice, ast.Constant)
        and (one.slice.value in _ANSWERS or (one.slice.value == "content" and "[-1]" in ast.unparse(one.value)))
        for one in ast.walk(value)
    )


def _finding(script: Script, render: ast.Call, answer: ast.expr, how: str) -> Finding:
    return Finding(
        f"`{ast.unparse(render)[:70]}` renders the prompt without `add_generation_prompt=True`, and {how}: the header of the"
        " assistant's turn is missing between prompt and answer, which stands there when the model is asked.",
        place=place_of(script, render),
        evidence=Evidence(Level.TEXT, {"prompt": ast.unparse(render)[:100], "answer": ast.unparse(answer)[:60]}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Pass `add_generation_prompt=True`; or hand the trainer the messages as they are.",
            effort=Effort.LINE,
            accuracy="Answers are learned behind what stands before them at inference.",
            measure="Print one row, decoded.",
        ),
        also=(place_of(script, answer),),
    )


_SCRIPT = """from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B-Instruct")


def pair(row):
    messages = [{"role": "user", "content": row["question"]}]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False%s)
    return {"prompt": prompt, "chosen": row["better"], "rejected": row["worse"]}
"""
RULE = Rule(
    code="MSK059",
    name="prompt-without-header",
    summary="A prompt is rendered without the header that its answer follows.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="Chat templates put a header in front of the assistant's turn (`<|im_start|>assistant`). A prompt that is"
        " rendered alone has it only with `add_generation_prompt=True`.",
        why="The answer stands right behind the user's turn in training and behind a header when the model is asked: what"
        " was learned is for another place.",
        detected="E0: `apply_chat_template(..., tokenize=False)` without it becomes the column `prompt` beside plain"
        " answers, or text that an answer of the row is added to, and all models that are named have such a header. Not said"
        " where the answer brings the header along.",
        proven="Print one row, decoded.",
        deliberate=("The project's own template puts no header.",),
        sources=("transformers' documentation on chat templates: `add_generation_prompt`",),
    ),
    bad=Example({"train.py": _SCRIPT % ""}, says="add_generation_prompt=True"),
    good=Example({"train.py": _SCRIPT % ", add_generation_prompt=True"}),
)
