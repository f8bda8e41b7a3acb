"""MSK053: texts that begin with the beginning token are tokenised with a second one."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dynotune.audit.facts.asked import given
from dynotune.audit.facts.beginnings import MARKS, Beginnings
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import connected, imported
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import Known, known
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.base_without_template import base_without_template
from dynotune.audit.shapes.beginning_in_the_middle import beginning_in_the_middle, tokenizes
from dynotune.audit.shapes.beginning_put_in_front import (
    completions_of_axolotl,
    configured,
    put_in_front,
    rows_that_begin_so,
)

_BEGINS = frozenset({"llama", "mistral", "gemma", "gemma2", "gemma3_text"})
"""Types whose templates write a beginning token and whose tokenizers add one."""

_NONE = re.compile(r"smollm|tinyllama", re.IGNORECASE)  # of type `llama`, with templates that write none

_ADDED_BY_NONE = re.compile(r"smollm", re.IGNORECASE)


def check(project: Project, _: Project) -> Iterator[Said]:
    for script in project.scripts:
        yield from _of_a_script(script, project)
    for job in project.jobs:
        if not any(one.file in job.files for one in project.scripts):
            yield from _of_rows(job, project)


def _of_rows(job: Job, project: Project) -> Iterator[Said]:
    """Of a trainer that tokenises a file's texts as they are."""
    name = str(job.get("model_name_or_path") or "")
    model = known(name)
    if model is None or model.model_type not in _BEGINS or _ADDED_BY_NONE.search(name):
        return
    if any(_ADDS_NONE.search(project.texts.get(file, "")) for file in job.files):
        return
    mark = _mark(name, model)
    found = rows_that_begin_so(job, project, mark)
    if found is not None:
        rows, key = found
        yield Finding(
            f"Rows of `{rows.file}` begin with `{mark}`, and the tokenizer adds another in front: they begin with two.",
            place=rows,
            also=(key,),
            evidence=Evidence(Level.TEXT, {"begin with": mark, "model": name}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"Take `{mark}` off the rows: the tokenizer writes it.",
                accuracy="Rows begin as they will at inference.",
                measure="Print the first four ids of a row.",
            ),
        )


def _of_a_script(script: Script, project: Project) -> Iterator[Said]:
    near = imported(script, project)
    models = _models(script, project)
    if not models or any(one.model_type not in _BEGINS or _ADDED_BY_NONE.search(name) for name, one in models):
        return
    program = connected(script, project)
    if any(_ADDS_NONE.search(one.source) for one in program):
        return
    if any(one for job in project.jobs if script.file in job.files for one in base_without_template(job, project)):
        return  # its first row raises an error (CFG015)
    front = next(put_in_front(script), None)
    if front is not None:
        yield _put_in_front(script, front)
        return
    rendered = not any(_NONE.search(name) for name, _ in models)
    config = any(mark in text for mark in MARKS for file, text in project.texts.items() if not file.endswith(".py"))
    if rendered and (config or any(_WRITTEN.search(one.source) for one in (script, *near))):
        found = next(_twice(script, near, project), None)
        if found is not None:
            yield found
            return
    yield from beginning_in_the_middle(script, near)


def _twice(script: Script, near: Sequence[Script], project: Project) -> Iterator[Said]:
    if any(_of_another(one, _marks(script, project)) for one in (script, *near)):
        return
    own = Beginnings(script, near)
    functions = _functions(script)
    imports = {dotted.rpartition(".")[2] for dotted in script.imports.values()}
    columns = {key for room in (*functions, script.tree) for key in _columns(room, own)}
    fields = _fields((script, *near))
    if _trains_on_text(script):
        for other in near:
            makers = [one for one in _functions(other) if one.name in imports]
            for inner in (one for maker in makers for one in ast.walk(maker) if isinstance(one, ast.FunctionDef)):
                texts = Beginnings(other, imported(other, project))
                made = _as_text(inner, texts, fields)
                if made is not None:
                    yield _finding(other, made, "The trainer", texts)
        yield from _formatted(script, near, project)
    yield from _prepared(script, project, own)
    for room in (*functions, script.tree):
        if _trains_on_text(script) and (text := _as_text(room, own, fields)) is not None:
            yield _finding(script, text, "The trainer", own)
        for call in own_nodes(room):
            first = _text_of(call) if isinstance(call, ast.Call) and tokenizes(call) else None
            if first is None or not isinstance(call, ast.Call):
                continue
            column = (
                first.slice.value
                if isinstance(first, ast.Subscript) and isinstance(first.slice, ast.Constant)
                else None
            )
            there = configured(first, script, project)
            if there is None and not own.begins(first, room) and column not in columns:
                continue
            if any(word.arg == "add_special_tokens" or word.arg is None for word in call.keywords):
                continue
            said = _finding(script, call, f"`{ast.unparse(call.func)}(...)`", own)
            yield said if there is None else replace(_by_a_configuration(said, there), also=(there,))


def _by_a_configuration(said: Finding, there: Place) -> Finding:
    text = re.sub(r"\(by [^()]*\)", f"(by `{there.file}`, line {there.line})", said.message)
    remedy = replace(said.remedy, text="Take the beginning token out of the text: the tokenizer writes it.")
    return replace(said, message=text, remedy=remedy)


def _put_in_front(script: Script, node: ast.expr) -> Finding:
    return Finding(
        "The beginning token is put in front of ids that the tokenizer has begun with one: rows begin with two.",
        place=place_of(script, node),
        evidence=Evidence(Level.TEXT, {"ids": ast.unparse(node)[:80]}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Leave the token out, or tokenise with `add_special_tokens=False`.",
            accuracy="Rows begin as they will at inference.",
            measure="Print the first four ids of a row.",
        ),
    )


def _fields(files: Sequence[Script]) -> set[str]:
    """Columns that TRL's trainer tokenises."""
    named = (call.arguments.get("dataset_text_field") for one in files for call in one.calls)
    return {"text"} | {one.value for one in named if one is not None and isinstance(one.value, str)}


def _formatted(script: Script, near: Sequence[Script], project: Project) -> Iterator[Said]:
    """By the trainer's `formatting_func`: a lambda, or a function of this file or of one that it imports."""
    for call in script.calls_of("SFTTrainer"):
        given = _argument(script, call.place.line, "formatting_func")
        texts = Beginnings(script, near)
        if isinstance(given, ast.Lambda) and texts.begins(given.body, given):
            yield _finding(script, given.body, "The trainer", texts)
        for one in (script, *near) if isinstance(given, ast.Name) else ():
            texts = Beginnings(one, imported(one, project))
            for function in _functions(one):
                if isinstance(given, ast.Name) and function.name == given.id:
                    returned = [node.value for node in own_nodes(function) if isinstance(node, ast.Return)]
                    if returned and all(texts.begins(value, function) for value in returned):
                        yield _finding(one, returned[-1] or function.body[-1], "The trainer", texts)


def _argument(script: Script, line: int, name: str) -> ast.expr | None:
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Call) and node.lineno == line:
            for word in node.keywords:
                if word.arg == name:
                    return word.value
    return None


_WRITTEN = re.compile(rf"apply_chat_template|\.bos_token\b|[\"'](?:{'|'.join(map(re.escape, MARKS))})")
_ADDS_NONE = re.compile(r"add_bos_token[\"']?\s{0,4}[=:]\s{0,4}False")
_LLAMA_3 = re.compile(r"llama-?3", re.IGNORECASE)
_BY_HAND = re.compile(r"\w+\.bos_token\s*\+|\{\w+\.bos_token\}")


def _marks(script: Script, project: Project) -> set[str]:
    """The beginning tokens of the models that are named."""
    return {_mark(name, one) for name, one in _models(script, project)}


def _mark(name: str, one: Known) -> str:
    if one.model_type.startswith("gemma"):
        return "<bos>"
    return "<|begin_of_text|>" if one.model_type == "llama" and _LLAMA_3.search(name) else "<s>"


def _of_another(script: Script, marks: set[str]) -> bool:
    """A text begins with another family's mark, which is plain characters to this one's tokenizer."""
    return any(re.search(rf"[\"']{re.escape(one)}", script.source) for one in MARKS if one not in marks)


_WRITES = re.compile(r"save_to_disk|to_json|to_parquet|to_csv|push_to_hub|json\.dumps?\(|\.write\(|jsonlines")
_READS = re.compile(r"load_from_disk|load_dataset|from_json|read_json|read_parquet|from_parquet")


def _prepared(script: Script, project: Project, texts: Beginnings) -> Iterator[Said]:
    """A script renders rows to a column of text and writes them, and another one's trainer reads and tokenises them."""
    if not _WRITES.search(script.source) or script.calls_of("SFTTrainer"):
        return
    rooms = (*_functions(script), script.tree)
    made = next((one for room in rooms if (one := _as_text(room, texts, {"text"})) is not None), None)
    if made is None:
        return
    others = completions_of_axolotl(project)
    if len(others) == len(project.jobs) == 1:
        there = given(others[0], "datasets")
        also = (there.place if there is not None else others[0].home,)
        yield replace(_finding(script, made, "The trainer of rows of `type: completion`", texts), also=also)
        return
    users = [one for one in project.scripts if one.calls_of("SFTTrainer") and one not in imported(script, project)]
    if len(users) != 1 or not _trains_on_text(users[0]) or not _READS.search(users[0].source):
        return
    if "apply_chat_template" not in users[0].source and not users[0].calls_of("map"):
        call = users[0].calls_of("SFTTrainer")[0]
        yield replace(_finding(script, made, f"The trainer of `{users[0].file}`", texts), also=(call.place,))


def _functions(script: Script) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(script.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _columns(room: ast.AST, texts: Beginnings) -> Iterator[str]:
    """Columns that a function of `map` gives rendered conversations to."""
    for node in own_nodes(room):
        value = node.value if isinstance(node, ast.Return) else None
        for key, held in zip(value.keys, value.values, strict=True) if isinstance(value, ast.Dict) else ():
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and texts.begins(held, room):
                yield key.value


def _as_text(room: ast.AST, texts: Beginnings, fields: set[str]) -> ast.expr | None:
    """What a column that is trained on is given, where it begins so; of prompts with completions, the prompt."""
    for node in own_nodes(room):
        held: list[tuple[ast.expr | None, ast.expr]] = []
        if isinstance(node, ast.Dict):
            held = list(zip(node.keys, node.values, strict=True))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            held = [(node.targets[0].slice, node.value)]
        names = {key.value for key, _ in held if isinstance(key, ast.Constant)}
        prompts = {"prompt"} if {"prompt", "completion"} <= names else set()
        for key, value in held:
            if isinstance(key, ast.Constant) and key.value in fields | prompts and texts.begins(value, room):
                return value
    return None


def _trains_on_text(script: Script) -> bool:
    """TRL's trainer tokenises the column itself, with the tokenizer's special tokens."""
    if not script.calls_of("SFTTrainer") or "unsloth" in script.source:
        return False
    return not re.search(
        r"add_bos_token|removeprefix|bos_token|lstrip|add_special_tokens|skip_prepare_dataset",
        _BY_HAND.sub("", script.source),
    )


def _finding(script: Script, call: ast.expr | ast.stmt, what: str, texts: Beginnings) -> Finding:
    hand = texts.by_hand
    by = "the chat template" if hand is None else f"`{ast.unparse(hand)[:40]}`, by hand"
    return Finding(
        f"{what} tokenises a text that begins with the beginning token already (by {by}), and adds another in front: rows"
        " begin with two.",
        place=place_of(script, call),
        evidence=Evidence(Level.TEXT, {"call": ast.unparse(call)[:80]}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Take the beginning token out of the text: the tokenizer writes it."
            if hand is not None
            else "Hand the trainer the `messages` as they are, or take the beginning token off the text"
            " (`text.removeprefix(tokenizer.bos_token)`)."
            if what.startswith("The trainer")
            else "Pass `add_special_tokens=False`, or let `apply_chat_template` tokenise (`tokenize=True`).",
            accuracy="Rows begin as they will at inference.",
            measure="Print the first four ids of a row.",
        ),
    )


def _models(script: Script, project: Project) -> list[tuple[str, Known]]:
    """Of the program that the script is a part of: a file of templates names none itself."""
    program = connected(script, project)
    files = {one.file for one in program}
    names = [job.get("model_name_or_path") for job in project.jobs if files & set(job.files)]
    names += [
        node.value
        for one in program
        for node in ast.walk(one.tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and "/" in node.value
        and len(node.value) < 100
    ]
    return [(str(name), found) for name in names if (found := known(name)) is not None]


def _text_of(call: ast.Call) -> ast.expr | None:
    """What a tokenizer is given: the first argument, or `text=`."""
    if call.args:
        return call.args[0]
    return next((word.value for word in call.keywords if word.arg == "text"), None)


_SCRIPT = """from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B-Instruct")


def encode(row):
    text = tokenizer.apply_chat_template(row["messages"], tokenize=False)
    return tokenizer(text, truncation=True, max_length=2048%s)
"""
RULE = Rule(
    code="MSK053",
    name="two-beginnings",
    summary="Texts that begin with the beginning token are tokenised with a second one.",
    group=Group.CORRECTNESS,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="The chat templates of Llama, Mistral and Gemma write the beginning token; so do their tokenizers,"
        " unless told not"
        " to.",
        why="The model is trained on rows that begin with two, and is asked with one (or the other way round).",
        detected="E0: a text from `apply_chat_template(..., tokenize=False)`, or one with the beginning token in front, goes"
        " into a tokenizer without"
        " `add_special_tokens=False`, also one of a configuration, of a data file's rows, or of a script that makes them for"
        " Axolotl's `type: completion`; or the token's id is put in front of ids;"
        " and every model that is named belongs to such a family.",
        proven="`dynotune prepare --config sft.yaml --show 3`, or the first ids of a row.",
        deliberate=("A tokenizer that was loaded with `add_bos_token=False`.",),
        sources=("transformers' documentation on chat templates: special tokens are in the template already",),
    ),
    bad=Example({"train.py": _SCRIPT % ""}, says="begin with two"),
    good=Example({"train.py": _SCRIPT % ", add_special_tokens=False"}),
)
