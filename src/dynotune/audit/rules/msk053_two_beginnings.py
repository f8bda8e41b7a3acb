"""MSK053: texts that begin with the beginning token are tokenised with a second one."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import connected, imported
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import Known, known
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_BEGINS = frozenset({"llama", "mistral", "gemma", "gemma2", "gemma3_text"})
"""Types whose templates write a beginning token and whose tokenizers add one."""

_NONE = re.compile(r"smollm|tinyllama", re.IGNORECASE)  # of type `llama`, with templates that write none


def check(script: Script, project: Project) -> Iterator[Said]:
    near = imported(script, project)
    if not any(_WRITTEN.search(one.source) for one in (script, *near)) or not _begins(script, project):
        return
    program = connected(script, project)
    if any(_ADDS_NONE.search(one.source) for one in program):
        return
    if any(_of_another(one, _marks(script, project)) for one in (script, *near)):
        return
    functions = _functions(script)
    imports = {dotted.rpartition(".")[2] for dotted in script.imports.values()}
    writers = {one.name for one in functions if _returns_rendered(one)}
    writers |= {
        one.name for other in near for one in _functions(other) if one.name in imports and _returns_rendered(one)
    }
    writers |= {name for one in (script, *near) for name in _templates(one)}
    columns = {key for room in (*functions, script.tree) for key in _columns(room, _rendered(room, writers), writers)}
    for other in near if _trains_on_text(script) else ():
        makers = [one for one in _functions(other) if one.name in imports]
        for inner in (one for maker in makers for one in ast.walk(maker) if isinstance(one, ast.FunctionDef)):
            made = _as_text(inner, _rendered(inner, writers), writers)
            if made is not None:
                yield _finding(other, made, "The trainer")
                return
    yield from _prepared(script, project, writers)
    for room in (*functions, script.tree):
        rendered = _rendered(room, writers)
        if (text := _as_text(room, rendered, writers)) is not None and _trains_on_text(script):
            yield _finding(script, text, "The trainer")
            return
        for call in own_nodes(room):
            first = _text_of(call) if isinstance(call, ast.Call) and _tokenizes(call) else None
            if first is None or not isinstance(call, ast.Call):
                continue
            column = (
                first.slice.value
                if isinstance(first, ast.Subscript) and isinstance(first.slice, ast.Constant)
                else None
            )
            named = isinstance(first, ast.Name) and first.id in rendered
            if not _is_rendered(first, writers) and not named and column not in columns:
                continue
            if any(word.arg == "add_special_tokens" or word.arg is None for word in call.keywords):
                continue
            yield _finding(script, call, f"`{ast.unparse(call.func)}(...)`")
            return


_MARKS = ("<|begin_of_text|>", "<s>", "<bos>")
_WRITTEN = re.compile(rf"apply_chat_template|\.bos_token\b|[\"'](?:{'|'.join(map(re.escape, _MARKS))})")
_ADDS_NONE = re.compile(r"add_bos_token[\"']?\s{0,4}[=:]\s{0,4}False")
_LLAMA_3 = re.compile(r"llama-?3", re.IGNORECASE)
_BY_HAND = re.compile(r"\w+\.bos_token\s*\+|\{\w+\.bos_token\}")


def _marks(script: Script, project: Project) -> set[str]:
    """The beginning tokens of the models that are named."""
    return {
        "<bos>"
        if one.model_type.startswith("gemma")
        else "<|begin_of_text|>"
        if one.model_type == "llama" and _LLAMA_3.search(name)
        else "<s>"
        for name, one in _models(script, project)
    }


def _of_another(script: Script, marks: set[str]) -> bool:
    """A text begins with another family's mark, which is plain characters to this one's tokenizer."""
    return any(re.search(rf"[\"']{re.escape(one)}", script.source) for one in _MARKS if one not in marks)


def _templates(script: Script) -> Iterator[str]:
    """Constants of the file that are text with a beginning token in front."""
    for node in script.tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _starts(node.value):
            yield node.targets[0].id


def _starts(node: ast.expr) -> bool:
    """A text that begins with the token itself: `tok.bos_token + ...`, `f"<s>{...}"`."""
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        node = node.left
    if isinstance(node, ast.JoinedStr) and node.values:
        first = node.values[0]
        node = first.value if isinstance(first, ast.FormattedValue) else first
    if isinstance(node, ast.Attribute):
        return node.attr == "bos_token"
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(_MARKS)


_WRITES = re.compile(r"save_to_disk|to_json|to_parquet|to_csv|push_to_hub|json\.dumps?\(|\.write\(|jsonlines")
_READS = re.compile(r"load_from_disk|load_dataset|from_json|read_json|read_parquet|from_parquet")


def _prepared(script: Script, project: Project, writers: set[str]) -> Iterator[Said]:
    """A script renders rows to a column of text and writes them, and another one's trainer reads and tokenises them."""
    if not _WRITES.search(script.source) or script.calls_of("SFTTrainer"):
        return
    rooms = (*_functions(script), script.tree)
    made = next((one for room in rooms if (one := _as_text(room, _rendered(room, writers), writers)) is not None), None)
    if made is None:
        return
    users = [one for one in project.scripts if one.calls_of("SFTTrainer") and one not in imported(script, project)]
    if len(users) != 1 or not _trains_on_text(users[0]) or not _READS.search(users[0].source):
        return
    if "apply_chat_template" not in users[0].source and not users[0].calls_of("map"):
        call = users[0].calls_of("SFTTrainer")[0]
        yield replace(_finding(script, made, f"The trainer of `{users[0].file}`"), also=(call.place,))


def _functions(script: Script) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(script.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _columns(room: ast.AST, rendered: set[str], writers: set[str]) -> Iterator[str]:
    """Columns that a function of `map` gives rendered conversations to."""
    for node in own_nodes(room):
        value = node.value if isinstance(node, ast.Return) else None
        for key, held in zip(value.keys, value.values, strict=True) if isinstance(value, ast.Dict) else ():
            is_text = _is_rendered(held, writers) or (isinstance(held, ast.Name) and held.id in rendered)
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and is_text:
                yield key.value


def _as_text(room: ast.AST, rendered: set[str], writers: set[str]) -> ast.expr | None:
    """What a column `text` is given, where it is a rendered conversation."""
    for node in own_nodes(room):
        held: list[tuple[ast.expr | None, ast.expr]] = []
        if isinstance(node, ast.Dict):
            held = list(zip(node.keys, node.values, strict=True))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            held = [(node.targets[0].slice, node.value)]
        for key, value in held:
            if not isinstance(key, ast.Constant) or key.value != "text":
                continue
            if _is_rendered(value, writers) or (isinstance(value, ast.Name) and value.id in rendered):
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


def _finding(script: Script, call: ast.expr, what: str) -> Finding:
    return Finding(
        f"{what} tokenises a text that begins with the beginning token already (by the chat template, or by hand), and adds"
        " another in front: rows begin with two.",
        place=place_of(script, call),
        evidence=Evidence(Level.TEXT, {"call": ast.unparse(call)[:80]}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Pass `add_special_tokens=False`, or let `apply_chat_template` tokenise; hand TRL the `messages` as"
            " they are.",
            accuracy="Rows begin as they will at inference.",
            measure="Print the first four ids of a row.",
        ),
    )


def _begins(script: Script, project: Project) -> bool:
    models = _models(script, project)
    return bool(models) and all(one.model_type in _BEGINS and not _NONE.search(name) for name, one in models)


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


def _is_rendered(node: ast.AST, writers: set[str]) -> bool:
    """Text by a template, or with the token in front; one for each of several, or of a function that returns one."""
    if isinstance(node, ast.ListComp):
        return _is_rendered(node.elt, writers)
    if isinstance(node, ast.BinOp | ast.JoinedStr):
        return _starts(node) or (isinstance(node, ast.BinOp) and _is_rendered(node.left, writers))
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        held = node.func.value
        return (isinstance(held, ast.Name) and held.id in writers) or _starts(held)
    if isinstance(node.func, ast.Name) and node.func.id in writers:
        return True
    if not isinstance(node.func, ast.Attribute) or node.func.attr != "apply_chat_template":
        return False
    return any(
        word.arg == "tokenize" and isinstance(word.value, ast.Constant) and word.value.value is False
        for word in node.keywords
    )


def _rendered(room: ast.AST, writers: set[str]) -> set[str]:
    found: dict[str, bool] = {}
    for node in own_nodes(room):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if isinstance(node.value, ast.List) and not node.value.elts:
                continue  # which is filled by what is appended
            found[name] = found.get(name, True) and _is_rendered(node.value, writers)
        elif isinstance(node, ast.Lambda):
            found |= {one.arg: False for one in node.args.args}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
            name = ast.unparse(node.func.value)
            found[name] = found.get(name, True) and bool(node.args) and _is_rendered(node.args[0], writers)
    return {name for name, always in found.items() if always}


def _returns_rendered(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]
    return bool(returned) and all(_is_rendered(one, set()) for one in returned)


def _tokenizes(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    return bool(re.fullmatch(r"([\w.]*\.)?\w*tok(enizer)?(\.(batch_)?encode(_plus)?)?", name))


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
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="The chat templates of Llama, Mistral and Gemma write the beginning token; so do their tokenizers,"
        " unless told not"
        " to.",
        why="The model is trained on rows that begin with two, and is asked with one (or the other way round).",
        detected="E0: a text from `apply_chat_template(..., tokenize=False)`, or one with the beginning token in front, goes"
        " into a tokenizer without"
        " `add_special_tokens=False`, and every model that is named belongs to such a family.",
        proven="`dynotune prepare --config sft.yaml --show 3`, or the first ids of a row.",
        deliberate=("A tokenizer that was loaded with `add_bos_token=False`.",),
        sources=("transformers' documentation on chat templates: special tokens are in the template already",),
    ),
    bad=Example({"train.py": _SCRIPT % ""}, says="begin with two"),
    good=Example({"train.py": _SCRIPT % ", add_special_tokens=False"}),
)
