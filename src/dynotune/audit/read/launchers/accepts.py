"""Which flags a script's own parser takes: argparse's, or the fields of dataclasses behind `HfArgumentParser`."""

import ast
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from dynotune.audit.facts.job import Method, Trainer
from dynotune.audit.facts.script import Script
from dynotune.audit.read.launchers.accepts_of_absl import flags_of_absl
from dynotune.audit.read.launchers.accepts_of_functions import flags_of_a_command
from dynotune.audit.read.launchers.parser_elsewhere import with_its_parser
from dynotune.audit.read.python.bindings import dotted
from dynotune.audit.read.python.parsers import DATACLASSES, Parser, parsers_of
from dynotune.audit.schema import Schemas
from dynotune.audit.schema.moved import TRANSFORMERS as TRANSFORMERS_KEYS
from dynotune.audit.schema.moved import TRL as TRL_KEYS

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

    command: str = ""
    """The sub-command that the command chooses, where it has some."""

    spelled: frozenset[str] = frozenset()
    """The flags as a command must write them, dashes and underscores apart (`--batch-size`); empty: either way will do."""

    prefixes: bool = True
    """argparse takes a beginning of a flag that fits one alone."""

    adds: tuple[ast.Call, ...] = ()
    """The calls of `add_argument` of one parser of argparse without sub-commands; empty: another, or several."""

    def takes(self, name: str) -> bool:
        if name in self.flags or name.removeprefix("no_") in self.flags or name in ("h", "help"):
            return True
        return self.prefixes and sum(flag.startswith(name) for flag in self.flags) == 1

    def meant_by(self, written: str) -> str:
        """The flag that differs from what a command writes in dashes and underscores alone, which the parser refuses; empty:
        there is none, or it is taken."""
        if not self.spelled or not written.startswith("--") or written in self.spelled:
            return ""
        name = _destination(written)
        close = [one for one in sorted(self.spelled) if one.startswith("--") and _destination(one) == name]
        return close[0] if close else ""


_TURNS_DASHES = re.compile(r"replace\(\s*['\"][-_]['\"]\s*,\s*['\"][-_]['\"]")
"""A program that turns dashes and underscores into each other, of its arguments perhaps."""


def accepts(
    script: Script, others: Mapping[str, Script], schemas: Schemas, words: tuple[str, ...] = ()
) -> Accepts | None:
    """Of all parsers that the file asks when it runs, those of files that it imports too, together; of sub-commands the one
    that stands among `words`, the command's own. None: the file has no parser that could be read. It is read once, however
    many commands start it."""
    if not any("add_parser" in one.source for one in (script, *others.values())):
        words = ()
    of_libraries = (*sorted(schemas.packages.folders.items()), schemas.own)
    key: Hashable = (words, frozenset(others), of_libraries)
    known = _KNOWN.setdefault(script.tree, {})
    if key not in known:
        known[key] = _accepts(script, others, schemas, words)
    return known[key]


_KNOWN: WeakKeyDictionary[ast.Module, dict[Hashable, Accepts | None]] = WeakKeyDictionary()
"""By the parsed script, as long as that is there."""


def _accepts(script: Script, others: Mapping[str, Script], schemas: Schemas, words: tuple[str, ...]) -> Accepts | None:
    tree = with_its_parser(script, others)
    if "Parser" not in script.source and tree is script.tree:
        of_absl = flags_of_absl(script, others)
        command = ("absl", of_absl, frozenset[str]()) if of_absl is not None else flags_of_a_command(script)
        if command is None:
            return None
        return Accepts(command[1], closed=True, parser=command[0], prefixes=False, spelled=command[2])
    parsers = parsers_of(tree)
    asked = parsers.asked()
    made = [
        _of_dataclasses(one, tree, others, schemas) if one.kind in DATACLASSES else _of_argparse(one, words)
        for one in asked
    ]
    stray = _added(parsers.stray)
    flags = stray.flags.union(*(one.flags for one in made))
    if not made or not flags:
        return None
    closed = all(one.closed for one in (*made, stray)) and not parsers.unknown_parses
    parses = [call for one in asked for call in one.parses]
    strict = any(not _leaves_rest(call) for call in parses)
    handed = _rests_are_handed_on(parses, tree)
    # `absl.flags.argparse_flags` takes absl's flags too, whoever defines them.
    changed = _changes_the_command_line(tree) or "argparse_flags" in script.source
    classes = [one for one in made if one.parser != "argparse"]
    either = bool(classes) or _TURNS_DASHES.search(script.source) is not None
    chosen = (one.command for one in made if one.command)
    return Accepts(
        flags,
        closed=closed and strict and handed and not changed,
        drops=closed and not strict and not changed and _throws_rest_away(tree),
        parser=classes[0].parser if classes else "argparse",
        reads_config=any(one.reads_config for one in classes),
        whose=next((one.whose for one in classes if one.whose), None),
        stored=stray.stored.union(*(one.stored for one in made)),
        spelled=frozenset() if either else stray.spelled.union(*(one.spelled for one in made)),
        command=next(chosen, ""),
        adds=_alone(asked, stray) if not classes else (),
    )


def _alone(asked: Sequence[Parser], stray: Accepts) -> tuple[ast.Call, ...]:
    """What adds to the only parser that is asked, with its parents'."""
    if (
        len(asked) != 1
        or asked[0].kind != "ArgumentParser"
        or stray.flags
        or any(one.below for one in asked[0].family())
    ):
        return ()
    return tuple(call for one in asked[0].family() for call in one.adds if _last(call.func) == "add_argument")


def _of_argparse(parser: Parser, words: tuple[str, ...]) -> Accepts:
    family = list(parser.family(words))
    found = _added([call for one in family for call in one.adds])
    chosen = [word for word in words if any(word in one.commands for one in family)]
    command = " ".join(chosen) if len(family) < len(list(parser.family())) else ""
    return replace(found, closed=found.closed and not any(one.is_open for one in family), command=command)


def _added(calls: Sequence[ast.Call]) -> Accepts:
    """What these calls of `add_argument` add."""
    flags: set[str] = set()
    stored: set[str] = set()
    spelled: set[str] = set()
    closed = True
    for node in calls:
        if _last(node.func) != "add_argument":
            continue
        names = [item.value for item in node.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        closed = closed and len(names) == len(node.args) and bool(names)
        flags |= {_destination(name) for name in names}
        spelled |= {*names, *(f"--no-{name[2:]}" for name in names if "Optional" in ast.unparse(node))}
        stored |= _stored(node, [name for name in names if name.startswith("--")])
    return Accepts(frozenset(flags), closed, parser="argparse", stored=frozenset(stored), spelled=frozenset(spelled))


def _destination(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _stored(call: ast.Call, long: Sequence[str]) -> set[str]:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    action = ast.unparse(given["action"]).strip("'\"") if "action" in given else "store"
    keeps = action.startswith("store") or "Boolean" in action
    return {_destination(long[0])} if keeps and len(long) == 1 and "dest" not in given else set()


def _leaves_rest(parse: ast.Call) -> bool:
    """It takes what it knows, and gives back or drops the rest."""
    loose = ("return_remaining_strings", "allow_extra_keys", "fail_with_unknown_args")
    given = {keyword.arg: keyword.value for keyword in parse.keywords if keyword.arg in loose}
    values = [(name == "fail_with_unknown_args") != _is_true(node) for name, node in given.items()]
    return _last(parse.func) == "parse_known_args" or any(values)


def _rests_are_handed_on(parses: Sequence[ast.Call], tree: ast.Module) -> bool:
    """What a parser leaves goes to one that is asked, by its name, or as the new command line."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if node.value in parses and _leaves_rest(node.value):
            target = node.targets[0]
            last = target.elts[-1] if isinstance(target, ast.Tuple) and target.elts else target
            names.add(last.id if isinstance(last, ast.Name) else "")
    strict = [call for call in parses if not _leaves_rest(call)]
    takes = {one.id for call in strict for one in ast.walk(call) if isinstance(one, ast.Name)}
    takes |= {one.id for value in _command_lines(tree) for one in ast.walk(value) if isinstance(one, ast.Name)}
    left = sum(_leaves_rest(call) for call in parses)
    return left <= len(names) and names <= takes


def _command_lines(tree: ast.Module) -> Iterator[ast.expr]:
    """What is assigned to `sys.argv`, or a part of it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _names_argv(*node.targets):
            yield node.value


_CHANGES = frozenset({"remove", "pop", "insert", "append", "extend", "clear"})


def _changes_the_command_line(tree: ast.Module) -> bool:
    """Words are taken out of `sys.argv` by hand, or put in: which are left for the parser cannot be told."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Delete) and _names_argv(*node.targets):
            return True
        func = node.func if isinstance(node, ast.Call) else None
        if isinstance(func, ast.Attribute) and func.attr in _CHANGES and dotted(func.value) == "sys.argv":
            return True
    values = list(_command_lines(tree))
    rests = {
        one.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _leaves_rest(node.value)
        for one in ast.walk(node.targets[0])
        if isinstance(one, ast.Name)
    }
    return any(not rests & {one.id for one in ast.walk(value) if isinstance(one, ast.Name)} for value in values)


def _names_argv(*targets: ast.expr) -> bool:
    return any(
        isinstance(one, ast.Attribute) and dotted(one) == "sys.argv" for target in targets for one in ast.walk(target)
    )


def _throws_rest_away(tree: ast.Module) -> bool:
    """`args, _ = parser.parse_known_args()`, or `parse_known_args()[0]`; the same of a parser of dataclasses that returns
    the strings which remain."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_known(node.value):
            target = node.targets[0]
            last = target.elts[-1] if isinstance(target, ast.Tuple) and len(target.elts) > 1 else None
            if isinstance(last, ast.Name):
                name = last.id
                used = sum(isinstance(other, ast.Name) and other.id == name for other in ast.walk(tree))
                return name.startswith("_") or used == 1
        if isinstance(node, ast.Subscript) and _is_known(node.value):
            return isinstance(node.slice, ast.Constant) and node.slice.value == 0
    return False


def _is_known(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    rest = given.get("return_remaining_strings")
    return _last(node.func) == "parse_known_args" or (rest is not None and _is_true(rest))


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _of_dataclasses(parser: Parser, tree: ast.Module, others: Mapping[str, Script], schemas: Schemas) -> Accepts:
    node = parser.made
    given = node.args[:1] or [one.value for one in node.keywords if one.arg == "dataclass_types"]
    added = _added(parser.adds)
    flags = set(added.flags)
    listed = given[0] if given else None
    if isinstance(listed, ast.Name):
        listed = _assigned(tree, listed.id) or listed
    classes = listed.elts if isinstance(listed, ast.Tuple | ast.List) else [listed] if listed is not None else []
    whose = None
    known = bool(classes)
    for item in classes:
        name = _last(item)
        found = dict(_fields(name, tree, others, schemas, 0))
        known = known and "?" not in found and bool(found)
        flags |= set(found)
        base = next((held for held in _bases(name, tree, others, 0) if held in TRAINERS), None)
        whose = whose or (TRAINERS[base] if base else None)
    ways = {_last(call.func) for call in parser.parses}
    reads_config = parser.kind == "TrlParser" and "parse_args_and_config" in ways
    if reads_config:
        flags.add("config")
    by_hand = any(way.startswith(("parse_yaml", "parse_json", "parse_dict")) for way in ways) and not reads_config
    closed = known and added.closed and not by_hand and not parser.is_open
    return Accepts(
        frozenset(flags),
        closed,
        parser=parser.kind,
        reads_config=reads_config,
        whose=whose,
        stored=added.stored,
    )


def _fields(
    name: str, tree: ast.Module, others: Mapping[str, Script], schemas: Schemas, depth: int
) -> Iterator[tuple[str, bool]]:
    """Names of a dataclass's fields; `?` where a class could not be found."""
    held = _class(name, tree, others)
    if held is None or depth > 8:
        if name in LIBRARY:
            package = LIBRARY[name][0]
            fields = schemas.fields(*LIBRARY[name]) or schemas.keys(*TRAINERS.get(name, (Trainer.UNKNOWN, None))).keys
            yield from ((field, True) for field in fields)
            # What other releases took is a matter of the version that runs, which CFG002 knows.
            yield from ((field, True) for field in {**TRANSFORMERS_KEYS, **(TRL_KEYS if package == "trl" else {})})
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
                for node in script.tree.body:
                    if isinstance(node, ast.ClassDef) and node.name == name:
                        return node, script.tree
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
