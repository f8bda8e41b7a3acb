"""Documents are tokenised one after the other into one file of tokens, with nothing between them."""

import ast
import re
from collections.abc import Callable, Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code
from dynotune.audit.facts.training import TRAINS
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_WRITTEN = re.compile(
    r"\.tofile\(|np\.save\(|numpy\.save\(|torch\.save\(|open_memmap\(|memmap\([^\n]*w\+|\.write\([^\n]*tobytes"
)
_READ = re.compile(r"memmap\(|fromfile\(|np\.load\(|torch\.load\(")
_ADDS_NOTHING = re.compile(
    r"get_encoding\([\"'](?:gpt2|r50k_base|p50k_base|cl100k_base|o200k_base)|[\"'/](?:gpt2[\w-]*|Qwen2?[\d.]*-[\w.-]+|pythia-[\w.]+"
    r"|SmolLM2?-[\w.]+|OLMo[\w.-]+)[\"']",
    re.IGNORECASE,
)
"""Tokenizers that put nothing around a text."""

_MANY = re.compile(
    r"dataset|\bds\b|docs|documents|texts|rows|lines|articles|stories|files|corpus|load_dataset|open\(", re.IGNORECASE
)
_ONE_TEXT = re.compile(r"open\(['\"][^'\"]*\.txt['\"][^()]*\)$")
_OF_A_ROW = re.compile(r"message|(?<!re)turn|\brole\b|prompt|answer|question|response|-100", re.IGNORECASE)


def documents_in_a_file(script: Script, project: Project, ends: re.Pattern[str]) -> Iterator[Said]:
    """ends: what may stand between documents."""
    text = code(script)
    if not _WRITTEN.search(text) or ends.search(text) or _OF_A_ROW.search(text) or not _ADDS_NOTHING.search(text):
        return
    readers = [one for one in project.scripts if _READ.search(one.source) and TRAINS.search(one.source)]
    if not readers:
        return
    joins = _in_a_loop(script) or _by_map(script)
    if joins is None:
        return
    yield Finding(
        f"`{ast.unparse(joins)[:70]}` puts one text's tokens behind the other's without an end or a beginning"
        f" between them, and `{readers[0].file}` trains on windows of the file: the model never sees where a"
        " document ends.",
        place=place_of(script, joins),
        evidence=Evidence(Level.TEXT, {"joined": ast.unparse(joins)[:80], "between": None}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Put the end token's id behind each document's ids.",
            effort=Effort.LINE,
            accuracy="Ends of documents are learned.",
            measure="Decode one block.",
        ),
    )


def _in_a_loop(script: Script) -> ast.AST | None:
    for loop in (node for node in ast.walk(script.tree) if isinstance(node, ast.For)):
        if not _MANY.search(f"{ast.unparse(loop.target)} {ast.unparse(loop.iter)}"):
            continue
        if _ONE_TEXT.match(ast.unparse(loop.iter)) and "loads(" not in ast.unparse(loop):
            continue  # lines of one text, perhaps
        joins = next((node for node in ast.walk(loop) if joins_ids(node, _is_tokenised)), None)
        if joins is not None:
            return joins
    return None


_LAID_BEHIND = re.compile(r"\w+\[\w+:\w+ \+ [^\n=]+\] = |concatenate\(|\.write\(|\.tofile\(|from_iterable\(|hstack\(")


def _by_map(script: Script) -> ast.AST | None:
    """A function that `map` (of a data set, or of a pool) calls tokenises a row's text, and all are laid in a line then."""
    text = ast.unparse(script.tree)
    if not _LAID_BEHIND.search(text):
        return None
    mapped = set(re.findall(r"\b(?:map|imap|imap_unordered|starmap)\((?:function=)?(\w+)", text))
    for room in ast.walk(script.tree):
        if isinstance(room, ast.FunctionDef) and room.name in mapped:
            for call in ast.walk(room):
                if (
                    isinstance(call, ast.Call)
                    and _is_tokenised(call)
                    and call.args
                    and _TEXT.search(ast.unparse(call.args[0]))
                ):
                    return call
    return None


_TEXT = re.compile(r"^(?:\w+\[['\"]\w+['\"]\]|text|doc|document|story|article|content)(?:\.strip\(\))?$")


def joins_ids(node: ast.AST, are_ids: Callable[[ast.expr], bool]) -> bool:
    """`ids.extend(tok.encode(text))`, `ids += enc.encode_ordinary(text)`: ids are put behind others."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return are_ids(node.value)
    is_extend = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "extend"
    return is_extend and isinstance(node, ast.Call) and len(node.args) == 1 and are_ids(node.args[0])


def _is_tokenised(node: ast.expr) -> bool:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    return bool(re.search(r"(?:^|\.)\w*(?:tok|enc)\w*(?:\.encode\w*)?$", name)) and "decode" not in name
