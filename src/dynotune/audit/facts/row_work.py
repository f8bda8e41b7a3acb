"""Long work that is done for each row or batch, at each of its uses: in data sets, collators and generators."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from dynotune.audit.facts.loaded_data import argument, makers
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import loops

_HEAVY = re.compile(
    r"(^|\.)(\w*tokenizer|\w*tok|\w*processor|tokenize|encode_plus|batch_encode_plus|apply_chat_template"
    r"|encode_ordinary|encode_batch|encode_as_ids|EncodeAsIds)$"
)
_LIGHT = re.compile(r"\.(pad|decode|batch_decode|convert_\w+|get_\w+|save_\w+|add_\w+|enable_\w+|no_\w+)$")
"""What a tokenizer does without reading text."""

_MAKES_TOKENIZERS = (
    "Tokenizer.from_pretrained",
    "TokenizerFast.from_pretrained",
    "Processor.from_pretrained",
    "Tokenizer.from_file",
    "PreTrainedTokenizerFast",
    "SentencePieceProcessor",
    "tiktoken.get_encoding",
    "tiktoken.encoding_for_model",
)
_EACH_ROW = ("__getitem__", "__getitems__", "__call__", "__iter__")
_READS = re.compile(
    r"^(PIL\.Image\.open|cv2\.(imread|imdecode|VideoCapture)|torchvision\.io\.(image\.)?(read_image|decode_\w+|read_video)"
    r"|imageio(\.v\d)?\.imread|skimage\.io\.imread|tifffile\.imread|torchaudio\.load|librosa\.load|soundfile\.read"
    r"|decord\.VideoReader|pydicom\.dcmread|nibabel\.load|rasterio\.open|torchvision\.datasets\.folder\.\w+_loader"
    r"|json\.load)$"
)
"""Opens a file of one row and decodes it."""

_FOLDERS = re.compile(
    r"^torchvision\.datasets\.(ImageFolder|DatasetFolder|ImageNet|Coco\w+|VOC\w+|Places365|Food101|OxfordIIITPet|Flowers102"
    r"|StanfordCars|Caltech\w+|CelebA|Cityscapes|INaturalist|Kinetics|UCF101|HMDB51|SUN397|Country211|FGVCAircraft|DTD)$"
    r"|^torchaudio\.datasets\.\w+$"
)
"""Data sets of libraries that open and decode a file for each row."""


def decodes(work: Call) -> bool:
    """Whether it opens and decodes files, rather than tokenising text."""
    return bool(_FOLDERS.search(work.name) or (_READS.search(work.name) and work.name != "json.load"))


def heavy_functions(script: Script) -> Mapping[str, Call]:
    """Functions of a file that do such work when they are called, also by calling each other: `load_image(path)`."""
    tokenizers = _tokenizers(script)
    does: dict[str, Call] = {}
    for call in script.calls:
        functions = [around.name for around in call.around if around.kind == "function"]
        in_class = any(around.kind == "class" for around in call.around)
        if len(functions) == 1 and not in_class and _is_heavy(call, tokenizers):
            does.setdefault(functions[0], call)
    bodies = [node for node in script.tree.body if isinstance(node, ast.FunctionDef)] if does else []
    for _ in bodies:
        new = {
            one.name: does[name] for one in bodies for name in _called_in(one) if name in does and one.name not in does
        }
        if not new:
            break
        does |= new
    return does


def _tokenizers(script: Script) -> set[str]:
    return {call.result for call in script.calls if call.name.endswith(_MAKES_TOKENIZERS)} - {""}


def is_heavy(call: Call, script: Script) -> bool:
    """It tokenises, or opens files."""
    return _is_heavy(call, _tokenizers(script))


def _is_heavy(call: Call, tokenizers: set[str]) -> bool:
    tokenizes = call.name in tokenizers or call.on in tokenizers or _HEAVY.search(call.name)
    return not _LIGHT.search(f".{call.name}") and bool(tokenizes or _READS.search(call.name))


_KEPT = re.compile(r"\bif\b[^\n]*\bnot in self\.\w+\s*:|\bif self\.\w+\[\w+\] is None\s*:")


def _is_kept(call: Call, script: Script) -> bool:
    """A row's work is done the first time that it is asked for: `if number not in self.rows:`."""
    first = call.place.line - 1
    return _KEPT.search("\n".join(script.source.split("\n")[max(first - 3, 0) : first + 1])) is not None


def _called_in(node: ast.AST) -> set[str]:
    """Functions that it calls by their names alone."""
    return {one.func.id for one in ast.walk(node) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)}


def heavy_calls(
    script: Script, users: Sequence[Script] = (), helpers: Mapping[str, Call] | None = None
) -> Mapping[str, Call]:
    """Calls that take long, by what makes them for each row or batch: a class with `__getitem__`, `__iter__` or `__call__`,
    and what these call of its methods; a collating function; or a function that hands out rows one by one. What a function
    does to all rows before it returns them is done once, and so is what `map` does. users: files that may hand such a
    function to a loader. helpers: functions of other files that take long."""
    heavy: dict[str, Call] = {}
    tokenizers = _tokenizers(script)
    of_rows = _methods_of_rows(script)
    names: dict[tuple[str, str], str] = {}
    for call in script.calls:
        holder = next((around.name for around in call.around if around.kind == "class"), "")
        functions = [around.name for around in call.around if around.kind == "function"]
        if _FOLDERS.search(call.name):
            heavy.setdefault(last(call.name), call)
        if not functions or not _is_heavy(call, tokenizers) or _is_kept(call, script):
            continue
        if holder and (holder, functions[0]) in of_rows:
            heavy.setdefault(holder, call)
        elif not holder:
            outer, inner = functions[0], functions[-1]
            if (outer, inner) not in names:  # once for each function: both go through the file
                names[outer, inner] = (
                    inner
                    if any(_is_given(inner, one) or _is_given(outer, one) for one in (script, *users))
                    else outer
                    if _hands_out(outer, script)
                    else ""
                )
            if names[outer, inner]:
                heavy.setdefault(names[outer, inner], call)
    heavy |= {
        name: call
        for name, call in _by_helpers(script, users, {**(helpers or {}), **heavy_functions(script)}, of_rows)
        if name not in heavy
    }
    for maker, function in _with_a_transform(script):
        if function in heavy:
            heavy.setdefault(maker, heavy[function])
    return heavy


def _by_helpers(
    script: Script, users: Sequence[Script], does: Mapping[str, Call], of_rows: set[tuple[str, str]]
) -> Iterator[tuple[str, Call]]:
    """What calls a function that takes long for each row: methods of data sets, collating functions and generators."""
    for node in ast.walk(script.tree) if does else ():
        if isinstance(node, ast.ClassDef):
            rows = [one for one in node.body if isinstance(one, ast.FunctionDef) and (node.name, one.name) in of_rows]
            for name in sorted(set().union(*map(_called_in, rows))) if rows else ():
                if name in does:
                    yield node.name, does[name]
        elif isinstance(node, ast.FunctionDef) and (
            any(_is_given(node.name, one) for one in (script, *users)) or _hands_out(node.name, script)
        ):
            yield from ((node.name, does[name]) for name in sorted(_called_in(node)) if name in does)


def _with_a_transform(script: Script) -> Iterator[tuple[str, str]]:
    """Functions that hand out a data set which calls another one for each row, with that one."""
    for node in ast.walk(script.tree) if "_transform(" in script.source else ():
        if isinstance(node, ast.FunctionDef):
            for function in re.findall(
                r"\.(?:set|with)_transform\((?:partial\(|functools\.partial\()?(\w+)", ast.unparse(node)
            ):
                yield node.name, function


def _methods_of_rows(script: Script) -> set[tuple[str, str]]:
    """Classes with those of their methods that run for each row or batch: those that a loader calls, and what these call."""
    calls: dict[str, dict[str, set[str]]] = {}
    for node in ast.walk(script.tree):
        if isinstance(node, ast.ClassDef):
            calls[node.name] = {
                one.name: {part.attr for part in ast.walk(one) if isinstance(part, ast.Attribute)}
                for one in node.body
                if isinstance(one, ast.FunctionDef)
            }
    found: set[tuple[str, str]] = set()
    for name, methods in calls.items():
        run = methods.keys() & set(_EACH_ROW)
        for _ in methods:
            run |= {one for called in run for one in methods[called]} & methods.keys() - {"__init__"}
        found |= {(name, one) for one in run}
    return found


def _is_given(name: str, script: Script) -> bool:
    """To a loader or a trainer that calls it for each batch, or to a data set that calls it for each row."""
    if name not in script.source:
        return False
    ways = rf"(collat\w*\s*=\s*|_transform\(\s*)(functools\.partial\(|partial\(|lambda [^:\n]*:\s*)?{re.escape(name)}\b"
    return re.search(ways, script.source) is not None


def _hands_out(name: str, script: Script) -> bool:
    """It is a generator."""
    return any(
        isinstance(node, ast.FunctionDef)
        and node.name == name
        and any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(node))
        for node in script.tree.body
    )


def called(work: Call) -> str:
    """As the source has it, or nearly."""
    return f"{work.on}.{last(work.name)}" if work.on else work.name.lstrip(".")


def last(name: str) -> str:
    return name.rpartition(".")[2]


def work_of(script: Script, loader: Call, heavy: Mapping[str, Call], near: Sequence[Script] = ()) -> Call | None:
    """The heavy call that this loader's data set or collator makes for each row. near: files used with this one."""
    collate = argument(script, loader, "collate_fn")
    if isinstance(collate, ast.Lambda) and (own := _within(loader, script)) is not None:
        return own
    if not heavy:
        return None
    return _first(_given_function(collate), heavy) or _first(
        _makers(argument(script, loader, "dataset", position=0), script, near, loader)
        | _makers(collate, script, near, loader),
        heavy,
    )


def work_of_trainer(
    script: Script, trainer: Call, heavy: Mapping[str, Call], near: Sequence[Script] = ()
) -> Call | None:
    """The heavy call that a trainer's data set or collator makes for each row; None also where no trainer is made."""
    if not heavy or not trainer.name.endswith("Trainer"):
        return None
    data = argument(script, trainer, "train_dataset")
    collate = argument(script, trainer, "data_collator")
    return _first(_given_function(collate), heavy) or _first(
        _makers(data, script, near, trainer) | _makers(collate, script, near, trainer), heavy
    )


def _within(loader: Call, script: Script) -> Call | None:
    """What takes long among the calls that stand in the loader's own."""
    tokenizers, first, end = _tokenizers(script), loader.place.line, loader.place.end_line
    return next(
        (one for one in script.calls if first <= one.place.line <= end and _is_heavy(one, tokenizers)),
        None,
    )


def work_of_loop(script: Script) -> Call | None:
    """Text that a training loop tokenises itself, between two steps; not what a model has just written."""
    tokenizers = _tokenizers(script)
    for loop in loops(script):
        if re.search(r"\.generate\(|\.decode\(|batch_decode\(", loop.text):
            continue
        for call in loop.calls:
            if call.each_step and _is_heavy(call, tokenizers) and not decodes(call) and call.name != "json.load":
                return call
    return None


def _makers(value: ast.expr | None, script: Script, near: Sequence[Script], call: Call) -> set[str]:
    room = next((around.name for around in reversed(call.around) if around.kind == "function"), "")
    return makers(value, script, near, room)


def _given_function(value: ast.expr | None) -> set[str]:
    """A function that is handed over: by its name, in `partial(...)` or in a lambda."""
    if value is None:
        return set()
    return {last(ast.unparse(one)) for one in ast.walk(value) if isinstance(one, ast.Name | ast.Attribute)}


def _first(names: set[str], heavy: Mapping[str, Call]) -> Call | None:
    return next((heavy[name] for name in sorted(names) if name in heavy), None)
