"""Where a job's own code pads rows to a fixed width."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dynotune.audit.facts.bins_of_whole_rows import filled_by_whole_rows
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import place_of, text_at
from dynotune.audit.facts.together import code, imported
from dynotune.audit.place import Place

SHORT = 128
"""Tokens up to which a fixed width is left alone: rows of a classifier or of single sentences, padded by habit."""

MULTIPLE = 512
"""From here on a batch is padded to what it is to be a multiple of more often than not."""

_ONE_SHAPE = re.compile(
    r"torch\.compile\(|torch_xla|\bxla\b|[Nn]euron|CUDAGraph|make_graphed_callables|torch_compile=True"
)
_NOT_TRAINING = re.compile(r"eval|valid|test|predict|generat|infer|answer|chat|embed", re.IGNORECASE)
_OF_DATA = re.compile(
    r"__getitem__|__call__|tokeni[sz]e|encode|prepare|process|collate|tensors|data_?set|features|^(?:load|build|make)_"
)
_PACKS = re.compile(r"\bmax\(|position_ids|segment|cu_seqlens|document|pack", re.IGNORECASE)
_WIDTH = re.compile(r"self\.\w+|[A-Z][A-Z0-9_]+|\d{3,}")


@dataclass(frozen=True, slots=True)
class Padded:
    place: Place
    by: str
    """The expression, as it stands in the source."""

    length: int | None

    what: str = "every row to the limit"


def padded_to_a_limit(job: Job, project: Project) -> Iterator[Padded]:
    """In the job's scripts and those that they import from. None where one shape is what the code is for."""
    scripts = {one.file: one for one in project.scripts if one.file in job.files}
    for one in list(scripts.values()):
        scripts |= {other.file: other for other in imported(one, project)}
    if any(_ONE_SHAPE.search(code(one)) for one in scripts.values()):
        return
    for script in scripts.values():
        told: set[Place] = set()  # a dictionary of options, and the calls that it is given to
        for call in script.calls:
            if (padding := call.arguments.get("padding")) is not None:
                if padding.place in told:
                    continue
                told |= {padding.place} if call.name == "dict" else set()
            multiple = call.arguments.get("pad_to_multiple_of")
            if multiple is not None and isinstance(multiple.value, int) and multiple.value >= MULTIPLE:
                where = multiple.place if multiple.place.file == script.file else call.place
                what = f"every batch to a multiple of {multiple.value:,}"
                yield Padded(where, f"pad_to_multiple_of={multiple.value}", None, what)
            if _to_max_length(call) and "max_length" not in call.arguments:
                place = call.arguments["padding"].place
                yield Padded(place, 'padding="max_length"', None, "every row to the tokenizer's own limit")
            elif _to_max_length(call):
                limit = call.arguments["max_length"].value
                length = limit if isinstance(limit, int) and not isinstance(limit, bool) else None
                said = call.arguments["padding"].place
                here = said.file == script.file and call.place.line <= said.line <= call.place.end_line
                if length is None and _of_the_batch(script, call):
                    continue
                if length is None or length > SHORT:
                    yield Padded(said if here else call.place, 'padding="max_length"', length)
        yield from _enabled(script)
        yield from _collators(script)
        yield from by_hand(script)
        yield from _in_map(script)
        yield from _at_once(script)


def _enabled(script: Script) -> Iterator[Padded]:
    """`tokenizer.enable_padding(length=512)`, of the package tokenizers."""
    for call in script.calls:
        given = call.arguments.get("length") if call.name.rpartition(".")[2] == "enable_padding" else None
        if given is not None and type(given.value) is int and given.value > SHORT:
            yield Padded(call.place, f"enable_padding(length={given.value})", given.value)
            return


def _of_the_batch(script: Script, call: Call) -> bool:
    """Whether the limit is worked out from the longest of the rows at hand."""
    words = set(re.findall(r"[A-Za-z_]\w*", text_at(script, call.arguments["max_length"].place)))
    return any(
        isinstance(node, ast.Assign)
        and any(isinstance(one, ast.Name) and one.id in words for one in node.targets)
        and re.search(r"\bmax\(.*\blen\(", ast.unparse(node.value), re.DOTALL)
        for node in ast.walk(script.tree)
    )


def _to_max_length(call: Call) -> bool:
    padding = call.arguments.get("padding")
    if padding is None or padding.value != "max_length":
        return False
    if "max_length" not in call.arguments and not (_TOKENIZES.search(call.name) and "truncation" in call.arguments):
        return False
    functions = [around.name for around in call.around if around.kind == "function"]
    if "return_tensors" in call.arguments and not any(_OF_DATA.search(name) for name in functions):
        return False  # a question to be answered, as likely as a data set
    return not any(_NOT_TRAINING.search(name) for name in functions)


def _in_map(script: Script) -> Iterator[Padded]:
    """`padding=True` in a function that `map` gives many rows at once: all of them are kept as long as the longest."""
    maps = [one for one in script.calls if one.name.rpartition(".")[2] == "map" and _is_batched(one)]
    for call in script.calls if maps else ():
        padding, limit = call.arguments.get("padding"), call.arguments.get("max_length")
        if padding is None or padding.value not in (True, "longest") or not _TOKENIZES.search(call.name):
            continue
        if limit is not None and isinstance(limit.value, int) and limit.value <= SHORT:
            continue
        functions = [around.name for around in call.around if around.kind == "function"]
        if any(_NOT_TRAINING.search(name) for name in functions):
            continue
        user = next((one for one in maps if _maps(one, call, functions, script)), None)
        if user is not None:
            yield Padded(
                padding.place, "padding=True", None, f"every row to the longest of {_rows(user)} that `map` hands over"
            )
            return


_ALL = re.compile(
    r"\.(?:tolist|to_list)\(\)$|^list\((?:\w+\.\w+|\w+\[['\"]\w+['\"]\]|(?:train|all)_\w+)\)$|^(?:train|all)_?(?:texts?|sentences|docs)$"
    r"|^(?:train|df|data|\w+_df)\w*(?:\[['\"]\w+['\"]\]|\.(?:text|review|sentence|content|tweet)\w*)(?:\.values)?$|^X_train\w*$"
)
"""All texts of a data set, as they are handed to a tokenizer."""


def _at_once(script: Script) -> Iterator[Padded]:
    """`tokenizer(train_texts, padding=True, truncation=True)`: one call for all rows, which a `Dataset` then hands out."""
    if not re.search(r"TensorDataset\(|__getitem__|from_dict\(", script.source):
        return
    for call in script.calls:
        padding, limit = call.arguments.get("padding"), call.arguments.get("max_length")
        if padding is None or padding.value not in (True, "longest") or not _TOKENIZES.search(call.name):
            continue
        if limit is not None and isinstance(limit.value, int) and limit.value <= SHORT:
            continue
        if any(one.kind in ("for", "while", "function", "class") for one in call.around):
            continue
        if _NOT_TRAINING.search(call.result) or not _ALL.search(_first_argument(script, call)):
            continue
        yield Padded(padding.place, "padding=True", None, "every row to the longest of the whole data set, in one call")
        return


def _first_argument(script: Script, call: Call) -> str:
    try:
        node = ast.parse(text_at(script, call.place).strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return ""
    return ast.unparse(node.args[0]) if isinstance(node, ast.Call) and node.args else ""


_TOKENIZES = re.compile(
    r"(?:^|\.)(?:\w*tokenizer|tok)$|Tokenizer\w*\.__call__$|Tokenizer\w*\.from_pretrained$", re.IGNORECASE
)


def _is_batched(call: Call) -> bool:
    batched, size = call.arguments.get("batched"), call.arguments.get("batch_size")
    small = size is not None and isinstance(size.value, int) and size.value < FEW
    return batched is not None and batched.value is True and not small


FEW = 200
"""Rows from which on the longest of them is much longer than the longest of a micro-batch."""


def _rows(call: Call) -> str:
    size = call.arguments.get("batch_size")
    if size is None:
        return "the 1,000"
    return f"the {size.value:,}" if isinstance(size.value, int) else "all"


def _maps(user: Call, call: Call, functions: list[str], script: Script) -> bool:
    """By the function's name, or in a lambda of its own."""
    text = text_at(script, user.place)
    if user.place.line <= call.place.line <= user.place.end_line and "lambda" in text and not functions:
        return True
    return bool(functions) and re.search(rf"\.map\(\s*(?:function=)?{re.escape(functions[-1])}\b", text) is not None


def _collators(script: Script) -> Iterator[Padded]:
    """`torch.full((len(rows), self.width), pad)` in a function that makes a batch with an attention mask."""
    if "attention_mask" not in script.source:
        return
    for function in ast.walk(script.tree):
        if not isinstance(function, ast.FunctionDef) or _NOT_TRAINING.search(function.name):
            continue
        whole = ast.unparse(function)
        if not re.search(r"['\"]attention_mask['\"]", whole) or _PACKS.search(whole):
            continue
        fixed = _fixed(script.tree) | _fixed(function)  # a function's own name hides the file's
        called = _called(function)
        for node in ast.walk(function):
            found = isinstance(node, ast.Call) and _rectangle(node, fixed, called)
            if found:
                assert isinstance(node, ast.Call)
                if re.search(rf"{re.escape(found)}\s*=[^=\n]*(\bmax\(|\blen\()", script.source):
                    break  # it follows the rows after all
                length = int(found) if found.isdigit() else fixed.get(found)
                if length is None or length > SHORT:
                    yield Padded(place_of(script, node), ast.unparse(node), length)
                break


_LIMIT = (
    r"(?:[\w.]*max_?(?:seq_?|source_?)?len(?:gth)?|[\w.]*(?:block_size|cutoff_len|seq_len(?:gth)?|context_length)"
    r"|(?:\w+\.)*[A-Z][A-Z0-9_]+)"
)
"""What a fixed width is called."""

_ROOM = re.compile(rf"(?:(\w+) = )?(?:max\(0, )?\(?\b({_LIMIT}) - (?:len\(|[\w.\[\]'\"]+\.(?:size\(|shape\[|numel\())")


_MASKED = re.compile(r"attention_mask|-100\b|IGNORE|\bpad\b|pad_|\bPAD")
"""A row that is told where it ends."""

_FILLER = r"(?:[\w.]*(?:pad|eos|ignore)[\w.]*|-100|[01])"
_ADDS = re.compile(rf"\w+\.append\({_FILLER}\)$|\w+ (?:\+= |= \w+ \+ )\[{_FILLER}\]$", re.IGNORECASE)
"""What adds nothing but padding: a stream's next token, or another row's, fills a row with text."""

_OF_TOKENS = re.compile(r"ids|tok|label|target|input", re.IGNORECASE)
_FILL = rf"(?:torch|np|numpy)\.(?:zeros|ones|full)\([(\[]?({_LIMIT})[,)\]]"


def _filled(script: Script, function: ast.FunctionDef, whole: str) -> Iterator[Padded]:
    """`x = torch.full((self.block_size,), -100)`, and `x[:n] = ids` after it; `while len(ids) < limit: ids.append(pad)`."""
    for node in ast.walk(function):
        short = isinstance(node, ast.While) and re.fullmatch(rf"len\(\w+\) < {_LIMIT}", ast.unparse(node.test))
        if short and isinstance(node, ast.While) and all(_ADDS.match(ast.unparse(one)) for one in node.body):
            yield Padded(place_of(script, node), f"while {ast.unparse(node.test)}", None)
            return
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        found = re.match(_FILL, ast.unparse(node.value))
        name = node.targets[0].id
        part = found and re.search(rf"\b{name}\[(?:0)?:(\w+|len\([\w.]+\))\] = ([^\n]*)", whole)
        given = re.search(rf"(?:input_ids|labels)['\"]?\]?(?::|\s?=) ?(?:\w+\.)*{name}\b", whole)
        if part and not given and not _OF_TOKENS.search(f"{name} {part[2]}"):
            continue  # weights, or a mask of a prefix
        if not found or not part or re.search(rf"\* {re.escape(found[1])}\b|\b{re.escape(found[1])} \*", whole):
            continue  # a piece of a stream that is cut every so many tokens
        if not re.search(rf"\b{re.escape(found[1])} = [^\n]*\bmax\(", script.source):
            yield Padded(place_of(script, node), ast.unparse(node.value), None)
            return


def by_hand(script: Script) -> Iterator[Padded]:
    """`ids + [pad] * (max_length - len(ids))` in a function that gives a row an attention mask or masked labels, and
    `F.pad(ids, (0, gap))` with such a gap."""
    for function in ast.walk(script.tree):
        if not isinstance(function, ast.FunctionDef) or _NOT_TRAINING.search(function.name):
            continue
        whole = ast.unparse(function)
        if not _MASKED.search(whole) or _PACKS.search(whole) or filled_by_whole_rows(function) is not None:
            continue
        yield from _filled(script, function, whole)
        for node in ast.walk(function):
            text = ast.unparse(node) if isinstance(node, ast.Assign | ast.BinOp) else ""
            found = _ROOM.match(text) if isinstance(node, ast.Assign) else _ROOM.search(text)
            gap = found and found[1]
            # As many of something, or by what pads and fills.
            named = rf"\] \* {gap}\b|\bpad\([^\n]*\b{gap}\b|\b(full|zeros|ones)\(\(?{gap}\b"
            fills = found and (re.search(named, whole) if gap else re.search(r"\] \* \(|\] \* max\(", text))
            if found and not gap and not fills:
                fills = re.search(rf"\bpad\([^\n]*{re.escape(text)}", whole)
            if found and fills and not re.search(rf"\b{re.escape(found[2])} = [^\n]*\bmax\(", script.source):
                yield Padded(place_of(script, node), text if len(text) < 60 else found[0].strip("( "), None)
                break


def _fixed(room: ast.FunctionDef | ast.Module) -> dict[str, int]:
    """Names of its own statements that are given a whole number, once."""
    given = [
        (target.id, node.value)
        for node in room.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    names = [name for name, _ in given]
    return {
        name: value.value
        for name, value in given
        if isinstance(value, ast.Constant) and type(value.value) is int and names.count(name) == 1
    }


def _called(function: ast.FunctionDef) -> dict[str, str]:
    """Names of a function that stand for a width that it does not work out (`width = self.max_length`), given once."""
    given = [
        (target.id, ast.unparse(node.value))
        for node in ast.walk(function)
        if isinstance(node, ast.Assign | ast.AugAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    ]
    names = [name for name, _ in given]
    return {name: value for name, value in given if names.count(name) == 1 and _WIDTH.fullmatch(value)}


def _rectangle(call: ast.Call, fixed: Mapping[str, int], called: Mapping[str, str]) -> str:
    """The width of a tensor of rows, where it is a number that the batch does not decide; else empty."""
    name = ast.unparse(call.func)
    if not re.fullmatch(r"(torch|np|numpy)\.(full|zeros|ones)", name) or not call.args:
        return ""
    shape = call.args[0].elts if isinstance(call.args[0], ast.Tuple | ast.List) else call.args
    if len(shape) < 2 or not re.fullmatch(r"len\(\w+\)", ast.unparse(shape[0])):
        return ""
    width = ast.unparse(shape[1])
    width = called.get(width, width)
    return width if _WIDTH.fullmatch(width) or width in fixed else ""
