"""Which flags a script's own parser takes: argparse's, or the fields of dataclasses behind `HfArgumentParser`."""

import ast
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynotune.audit.facts.job import Method, Trainer
from dynotune.audit.facts.script import Script
from dynotune.audit.schema import Schemas

_PARSERS = frozenset({"HfArgumentParser", "TrlParser", "H4ArgumentParser"})
LIBRARY: Mapping[str, tuple[str, str, str]] = {
    "SFTConfig": ("trl", "trainer.sft_config", "SFTConfig"),
    "DPOConfig": ("trl", "trainer.dpo_config", "DPOConfig"),
    "KTOConfig": ("trl", "trainer.kto_config", "KTOConfig"),
    "GRPOConfig": ("trl", "trainer.grpo_config", "GRPOConfig"),
    "RewardConfig": ("trl", "trainer.reward_config", "RewardConfig"),
    "ModelConfig": ("trl", "trainer.model_config", "ModelConfig"),
    "ScriptArguments": ("trl", "scripts.utils", "ScriptArguments"),
    "DatasetMixtureConfig": ("trl", "scripts.utils", "DatasetMixtureConfig"),
    "TrainingArguments": ("transformers", "training_args", "TrainingArguments"),
    "Seq2SeqTrainingArguments": ("transformers", "training_args_seq2seq", "Seq2SeqTrainingArguments"),
}
TRAINERS: Mapping[str, tuple[Trainer, Method | None]] = {
    "SFTConfig": (Trainer.TRL, Method.SFT),
    "DPOConfig": (Trainer.TRL, Method.DPO),
    "KTOConfig": (Trainer.TRL, Method.OTHER),
    "GRPOConfig": (Trainer.TRL, Method.OTHER),
    "RewardConfig": (Trainer.TRL, Method.OTHER),
    "TrainingArguments": (Trainer.TRANSFORMERS, None),
    "Seq2SeqTrainingArguments": (Trainer.TRANSFORMERS, None),
}


@dataclass(frozen=True, slots=True)
class Accepts:
    flags: frozenset[str]
    """By destination."""

    closed: bool
    """A flag that is not among them is refused. False: others are taken too, or dropped without a word."""

    drops: bool = False
    """`parse_known_args`: what is not among them goes nowhere, as far as the file shows."""

    parser: str = ""
    """`argparse`, or the name of the parser of dataclasses."""

    reads_config: bool = False
    """`--config` names a file whose keys become flags (`TrlParser`)."""

    whose: tuple[Trainer, Method | None] | None = None
    """Of the dataclasses."""

    stored: frozenset[str] = frozenset()
    """Of argparse's flags those whose values it keeps under their own names: not those with `dest`, or that do something
    themselves (`action="version"`)."""

    prefixes: bool = True
    """argparse takes a beginning of a flag that fits one alone."""

    def takes(self, name: str) -> bool:
        if name in self.flags or name.removeprefix("no_") in self.flags or name in ("h", "help"):
            return True
        return self.prefixes and sum(flag.startswith(name) for flag in self.flags) == 1


def accepts(script: Script, others: Mapping[str, Script], schemas: Schemas) -> Accepts | None:
    """None: the file has no parser that could be read."""
    tree = _tree(script.source)
    if tree is None:
        return None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    ways = {node.func.attr for node in calls if isinstance(node.func, ast.Attribute)}
    for node in calls:
        if _last(node.func) in _PARSERS and (node.args or node.keywords):
            return _of_dataclasses(node, tree, others, schemas, ways)
    flags: set[str] = set()
    stored: set[str] = set()
    closed = True
    for node in calls:
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "add_argument":
            continue
        names = [item.value for item in node.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        closed = closed and len(names) == len(node.args) and bool(names)
        flags |= {_destination(name) for name in names}
        stored |= _stored(node, [name for name in names if name.startswith("--")])
    parses = ways & {"parse_args", "parse_known_args"}
    makes = any(_last(node.func) == "ArgumentParser" for node in calls)
    if not flags or not parses or not makes:
        return None
    # What adds arguments out of sight: parents, `deepspeed.add_config_arguments(parser)`, a parser that is handed on.
    hidden = any(
        any(keyword.arg in ("parents", "fromfile_prefix_chars") for keyword in node.keywords)
        or _last(node.func) in ("add_config_arguments", "add_subparsers", "add_cli_args")
        or (_last(node.func) not in ("print",) and any(_is_parser(item) for item in node.args))
        for node in calls
    )
    strict = closed and not hidden and "parse_known_args" not in ways
    drops = closed and not hidden and "parse_args" not in ways and _throws_rest_away(tree)
    return Accepts(frozenset(flags), strict, drops, "argparse", stored=frozenset(stored))


def _destination(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _stored(call: ast.Call, long: Sequence[str]) -> set[str]:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    action = ast.unparse(given["action"]).strip("'\"") if "action" in given else "store"
    keeps = action.startswith("store") or "Boolean" in action
    return {_destination(long[0])} if keeps and len(long) == 1 and "dest" not in given else set()


def _throws_rest_away(tree: ast.Module) -> bool:
    """`args, _ = parser.parse_known_args()`, or `parse_known_args()[0]`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_known(node.value):
            target = node.targets[0]
            if isinstance(target, ast.Tuple) and len(target.elts) == 2 and isinstance(target.elts[1], ast.Name):
                name = target.elts[1].id
                used = sum(isinstance(other, ast.Name) and other.id == name for other in ast.walk(tree))
                return name.startswith("_") or used == 1
        if isinstance(node, ast.Subscript) and _is_known(node.value):
            return isinstance(node.slice, ast.Constant) and node.slice.value == 0
    return False


def _is_known(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _last(node.func) == "parse_known_args"


def _is_parser(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("parser", "arg_parser", "argparser", "ap")


def _of_dataclasses(
    node: ast.Call, tree: ast.Module, others: Mapping[str, Script], schemas: Schemas, ways: set[str]
) -> Accepts | None:
    listed = node.args[0] if node.args else node.keywords[0].value
    if isinstance(listed, ast.Name):
        listed = _assigned(tree, listed.id) or listed
    classes = listed.elts if isinstance(listed, ast.Tuple | ast.List) else [listed]
    flags: set[str] = set()
    whose = None
    known = True
    for item in classes:
        name = _last(item)
        found = dict(_fields(name, tree, others, schemas, 0))
        known = known and "?" not in found and bool(found)
        flags |= set(found)
        base = next((held for held in _bases(name, tree, others, 0) if held in TRAINERS), None)
        whose = whose or (TRAINERS[base] if base else None)
    parser = _last(node.func)
    loose = any(
        isinstance(one, ast.keyword)
        and one.arg in ("return_remaining_strings", "allow_extra_keys")
        and isinstance(one.value, ast.Constant)
        and one.value.value is True
        for one in ast.walk(tree)
    )
    reads_config = parser == "TrlParser" and "parse_args_and_config" in ways
    if reads_config:
        flags.add("config")
    by_hand = bool(ways & {"parse_yaml_file", "parse_json_file", "parse_dict"}) and not reads_config
    return Accepts(frozenset(flags), known and not loose and not by_hand, False, parser, reads_config, whose)


def _fields(
    name: str, tree: ast.Module, others: Mapping[str, Script], schemas: Schemas, depth: int
) -> Iterator[tuple[str, bool]]:
    """Names of a dataclass's fields; `?` where a class could not be found."""
    held = _class(name, tree, others)
    if held is None or depth > 8:
        if name in LIBRARY:
            fields = schemas.fields(*LIBRARY[name]) or schemas.keys(*TRAINERS.get(name, (Trainer.UNKNOWN, None))).keys
            yield from ((field, True) for field in fields)
            if not fields:
                yield "?", False
        elif name not in ("object", "Generic", "ABC", ""):
            yield "?", False
        return
    node, where = held
    for base in node.bases:
        yield from _fields(_last(base), where, others, schemas, depth + 1)
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, True


def _bases(name: str, tree: ast.Module, others: Mapping[str, Script], depth: int) -> Iterator[str]:
    yield name
    held = _class(name, tree, others)
    if held is not None and depth < 8:
        for base in held[0].bases:
            yield from _bases(_last(base), held[1], others, depth + 1)


def _class(name: str, tree: ast.Module, others: Mapping[str, Script]) -> tuple[ast.ClassDef, ast.Module] | None:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node, tree
    for statement in tree.body:
        if not isinstance(statement, ast.ImportFrom) or not any(
            (alias.asname or alias.name) == name for alias in statement.names
        ):
            continue
        ending = (statement.module or "").replace(".", "/")
        for file, script in others.items():
            if file.removesuffix(".py").removesuffix("/__init__").endswith(ending) and f"class {name}" in script.source:
                there = _tree(script.source)
                if there is not None:
                    for node in there.body:
                        if isinstance(node, ast.ClassDef) and node.name == name:
                            return node, there
    return None


def _assigned(tree: ast.Module, name: str) -> ast.expr | None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            return node.value
    return None


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _tree(source: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
