"""Long work that is done for each row or batch, at each of its uses: in data sets, collators and generators."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import text_at

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
_READS = frozenset({"PIL.Image.open", "torchaudio.load", "librosa.load", "json.load"})


def heavy_calls(script: Script, users: Sequence[Script] = ()) -> Mapping[str, Call]:
    """Calls that take long, by what makes them for each row or batch: a class with `__getitem__`, `__iter__` or `__call__`,
    and what these call of its methods; a collating function; or a function that hands out rows one by one. What a function
    does to all rows before it returns them is done once, and so is what `map` does. users: files that may hand such a
    function to a loader."""
    heavy: dict[str, Call] = {}
    tokenizers = {call.result for call in script.calls if call.name.endswith(_MAKES_TOKENIZERS)} - {""}
    of_rows = _methods_of_rows(script)
    names: dict[tuple[str, str], str] = {}
    for call in script.calls:
        holder = next((around.name for around in call.around if around.kind == "class"), "")
        functions = [around.name for around in call.around if around.kind == "function"]
        tokenizes = call.name in tokenizers or call.on in tokenizers or _HEAVY.search(call.name)
        if not functions or _LIGHT.search(f".{call.name}") or not (tokenizes or call.name in _READS):
            continue
        if holder and (holder, functions[0]) in of_rows:
            heavy.setdefault(holder, call)
        elif not holder:
            outer, inner = functions[0], functions[-1]
            if (outer, inner) not in names:  # once for each function: both go through the file
                names[outer, inner] = (
                    inner
                    if any(_is_given(inner, one) for one in (script, *users))
                    else outer
                    if _hands_out(outer, script)
                    else ""
                )
            if names[outer, inner]:
                heavy.setdefault(names[outer, inner], call)
    for maker, function in _with_a_transform(script):
        if function in heavy:
            heavy.setdefault(maker, heavy[function])
    return heavy


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


def work_of(script: Script, loader: Call, heavy: Mapping[str, Call]) -> Call | None:
    """The heavy call that this loader's data set or collator makes for each row."""
    text = text_at(script, loader.place)
    collate = re.search(r"collate_fn\s*=\s*(?:functools\.)?(?:partial\(\s*|lambda [^:\n]*:\s*)?(\w+)", text)
    if collate and collate[1] in heavy:
        return heavy[collate[1]]
    first = re.match(r"[\w.]*DataLoader\(\s*(dataset\s*=\s*)?(\w+)", text)
    if not first:
        return None
    makers = {last(call.name) for call in script.calls if call.result == first[2]} | {first[2]}
    if collate:
        makers |= {last(call.name) for call in script.calls if call.result == collate[1]}
    return next((heavy[name] for name in sorted(makers) if name in heavy), None)


def work_of_trainer(script: Script, trainer: Call, heavy: Mapping[str, Call]) -> Call | None:
    """The heavy call that a trainer's data set makes for each row; None also for a call that makes no trainer."""
    data = re.search(r"train_dataset\s*=\s*([\w.]+)", text_at(script, trainer.place))
    if data is None or not trainer.name.endswith("Trainer"):
        return None
    name = data[1].rpartition(".")[2]
    makers = {name} | {last(one.name) for one in script.calls if one.result == data[1]}
    makers |= set(re.findall(rf"\b{name}\b[\w.\[\]'\"= ]*\.(?:set|with)_transform\(\s*(\w+)", script.source))
    makers |= set(
        re.findall(rf"^\s*{name}\s*=[^=\n][^\n]*\.(?:set|with)_transform\(\s*(\w+)", script.source, re.MULTILINE)
    )
    return next((heavy[name] for name in sorted(makers) if name in heavy), None)
