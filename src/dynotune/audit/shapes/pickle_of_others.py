"""A file that comes from elsewhere is unpickled, and may run whatever stands in it."""

import ast
import re
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.ranks import last_part
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_SAFE_SINCE = (2, 6)
"""torch, from which on `torch.load` takes tensors alone unless it is told otherwise."""

_FETCHES = re.compile(
    r"(?:^|\.)(?:hf_hub_download|snapshot_download|cached_file|cached_path|urlretrieve|urlopen|download_url_to_file"
    r"|wget\.download|gdown\.download|gdown\.cached_download|download_file|download_blob_to_file|requests\.get|httpx\.get)$"
)
_BY_SHELL = re.compile(
    r"^\s*(?:RUN\s+|[-\w@+]*\s*)?.{0,80}\b(?:wget|curl|gsutil cp|aws s3 cp|gdown|huggingface-cli download)\b"
)
_PICKLES = {"pickle.load": 0, "joblib.load": 0, "dill.load": 0, "cloudpickle.load": 0, "pandas.read_pickle": 0}
_DEEPEST = 5
_MOST_VALUES = 3


def pickle_of_others(script: Script, project: Project) -> Iterator[Said]:
    """`torch.load(hf_hub_download(...), weights_only=False)`, and of a file that a launcher of the project downloads."""
    if not re.search(r"\bload\(|read_pickle\(", script.source):
        return
    given = _given(script)
    for call in script.calls:
        why = _unpickles(call.name, {name: one.value for name, one in call.arguments.items()}, project)
        if not why:
            continue
        node = next((one for one in ast.walk(script.tree) if _is_at(one, call.place)), None)
        path = node.args[0] if isinstance(node, ast.Call) and node.args else None
        if path is None:
            continue
        source = _fetched(path, given, script, project, 0)
        if source is None:
            continue
        what = ast.unparse(path)
        yield Finding(
            f"`{ast.unparse(node.func) if isinstance(node, ast.Call) else call.name}` unpickles `{what[:60]}`, which is"
            f" downloaded from elsewhere, {why}: it runs whatever code stands in the file.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"file": what[:80], "comes from": str(source)}),
            stake=Stake(AtStake.LOST, source="whoever can write there has the rights of who trains"),
            remedy=Remedy(
                Risk.OPERATIONAL,
                _remedy(call.name),
                breaks="A file that holds more than tensors does not load: ask for it as safetensors.",
            ),
            also=(source,),
        )
        return


def _remedy(name: str) -> str:
    if name == "numpy.load":
        return "Leave `allow_pickle` out: arrays of numbers need none."
    if name == "torch.load":
        return "Set `weights_only=True`, or take weights as safetensors."
    return "Take the data in a format without code (safetensors, JSON, Parquet)."


def _unpickles(name: str, given: Mapping[str, object], project: Project) -> str:
    """Why a call may run code; empty: it does not."""
    if name == "torch.load":
        told = given.get("weights_only", ...)
        pinned = project.pinned("torch")
        if told is False:
            return "with `weights_only=False`"
        old = pinned is not None and pinned < _SAFE_SINCE
        return (
            f"and torch {'.'.join(map(str, pinned or ()))} takes whole objects unless told otherwise"
            if told is ... and old
            else ""
        )
    if name == "numpy.load":
        return "with `allow_pickle=True`" if given.get("allow_pickle") is True else ""
    return "whole" if name in _PICKLES else ""


def _is_at(node: ast.AST, place: Place) -> bool:
    at = isinstance(node, ast.Call) and (node.lineno, node.end_lineno) == (place.line, place.end_line)
    return at and isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("load", "read_pickle")


def _given(script: Script) -> dict[str, list[ast.expr]]:
    """Values of names, of parameters by their defaults and by what calls of the file give them."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                found.setdefault(last_part(target), []).append(node.value)
        elif isinstance(node, ast.With):
            for item in node.items:
                if item.optional_vars is not None:
                    found.setdefault(last_part(item.optional_vars), []).append(item.context_expr)
        elif isinstance(node, ast.FunctionDef):
            names = [one.arg for one in node.args.args]
            for name, value in zip(reversed(names), reversed(node.args.defaults), strict=False):
                found.setdefault(name, []).append(value)
    return found


def _fetched(
    path: ast.expr, given: Mapping[str, list[ast.expr]], script: Script, project: Project, depth: int
) -> Place | None:
    """Where a file is fetched from elsewhere: what makes its path does, a call of the script writes to it, or a launcher
    of the project downloads it there."""
    if depth > _DEEPEST:
        return None
    for node in ast.walk(path):
        if isinstance(node, ast.Call) and _FETCHES.search(ast.unparse(node.func)):
            return place_of(script, node)
    text = ast.unparse(path)
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Call) and _FETCHES.search(ast.unparse(node.func)) and _writes(node, text):
            return place_of(script, node)
    for node in ast.walk(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            found = _by_shell(node.value, project)
            if found is not None:
                return found
        for value in given.get(node.id, ())[:_MOST_VALUES] if isinstance(node, ast.Name) else ():
            found = _fetched(value, given, script, project, depth + 1)
            if found is not None:
                return found
    return None


def _writes(call: ast.Call, path: str) -> bool:
    """`urlretrieve(url, path)`."""
    targets = [*call.args[1:], *(one.value for one in call.keywords if one.arg in ("output", "out", "filename", "dst"))]
    return any(ast.unparse(one) == path for one in targets)


def _by_shell(path: str, project: Project) -> Place | None:
    """`curl -o weights/encoder.pt https://...`: a line that downloads and names the file."""
    last = path.rpartition("/")[2]
    for file, text in project.texts.items():
        if file.endswith((".py", ".ipynb")) or last not in text:
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if (
                last in line
                and _BY_SHELL.search(line)
                and re.search(rf"(?:^|[\s/\"'=]){re.escape(last)}(?:$|[\s\"';?])", line)
            ):
                return Place(file, number)
    return None
