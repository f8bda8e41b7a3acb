"""Objects in constant expressions: parameters, attributes, items, and what calls of known functions give.

Longer than most files: what a call gives depends on attributes and parameters, and these on what other calls gave.
"""

import ast
import posixpath
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dynotune.audit.facts.setting import Unknown
from dynotune.audit.place import Place
from dynotune.audit.read.python import declared, files
from dynotune.audit.read.python.class_names import ASKED_BY, OF_NAMES, names_of
from dynotune.audit.read.python.commands import commands, started_by, told_to_typer
from dynotune.audit.read.python.module import FUNCTIONS, Binding, Function, Module, Scope, Site
from dynotune.audit.read.python.modules import MOST_CALLS
from dynotune.audit.read.python.rounds import MOST_LOOPS, put
from dynotune.audit.read.python.value import HOLE, ClassOf, Made, Names, Value, left_out, unknown
from dynotune.audit.read.python.written import written

if TYPE_CHECKING:
    from dynotune.audit.read.python.evaluator import Evaluator, Frame

_RUNS = "it is computed when the script runs"
OF_LAUNCHERS = frozenset({"WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK"})
_SAME = frozenset(
    {"to", "cuda", "cpu", "eval", "train", "bfloat16", "half", "float", "requires_grad_", "copy", "resolve", "unload"}
)
_OTHER_DEVICES = frozenset(
    f"torch.{kind}.is_available" for kind in ("xpu", "npu", "mlu", "hpu", "musa", "mps", "backends.mps")
)
_OPENS = frozenset(
    {
        *("json.load", "json.loads", "json5.load", "json5.loads", "yaml.safe_load", "yaml.load", "yaml.full_load"),
        *(
            "yaml.unsafe_load",
            "yaml.round_trip_load",
            "ruamel.yaml.safe_load",
            "toml.load",
            "toml.loads",
            "tomllib.load",
        ),
        *("tomllib.loads", "tomli.load", "tomli.loads", "ruamel.yaml.YAML.load", "srsly.read_yaml", "srsly.read_json"),
    }
)
_OPENS_PATH = frozenset({"omegaconf.OmegaConf.load", "OmegaConf.load"})
_PARSED_INTO = frozenset({"tyro.cli", "simple_parsing.parse", "draccus.parse", "jsonargparse.CLI"})
"""Calls that make an object of the class that they get, with its defaults and what the command line sets."""

_COLLECTIONS = frozenset({"set", "frozenset", "list", "tuple", "sorted"})
_AS_DICT = frozenset({"model_dump", "dict", "to_dict", "asdict", "_asdict", "as_dict", "toDict"})
"""Methods that give an object's attributes as a dictionary."""

_FROM_DICT = frozenset({"model_validate", "parse_obj", "from_dict", "load_from_dict"})
_NAMESPACES = frozenset({"SimpleNamespace", "Namespace", "EasyDict", "edict", "AttrDict", "Munch", "DotDict"})


class Objects:
    def __init__(self, evaluator: "Evaluator") -> None:
        self.of = evaluator

    # Parameters

    def parameter(self, name: str, scope: Scope, module: Module) -> Value | None:
        """What a function's parameter comes to by its call sites in the file, else by its default; None: no parameter."""
        node = scope.node
        assert isinstance(node, FUNCTIONS)
        positional = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        keyword_only = [argument.arg for argument in node.args.kwonlyargs]
        if name not in (*positional, *keyword_only):
            if node.args.kwarg is not None and name == node.args.kwarg.arg:
                return self._more(node, scope, module)
            taken = {argument.arg for argument in (node.args.vararg, node.args.kwarg) if argument is not None}
            return unknown(f"it is an argument of `{node.name}`") if name in taken else None
        configured = self._hydra(node, scope)
        if configured is not None and positional[:1] == [name]:
            return configured
        default = self._default(name, node, scope)
        method = scope.parent is not None and scope.parent.is_class
        bare = positional[1:] if method and positional[:1] in (["self"], ["cls"]) else positional
        given: list[Value] = []
        for of, site in self._sites_of(node, scope, module):
            passed = next((keyword.value for keyword in site.node.keywords if keyword.arg == name), None)
            if passed is None and name in bare and bare.index(name) < len(site.node.args):
                passed = site.node.args[bare.index(name)]
            if isinstance(passed, ast.Starred):
                given.append(unknown(f"it is an argument of `{node.name}`"))
            elif passed is None and any(k.arg is None for k in site.node.keywords):
                every = of.objects.arguments(site.node, site.scope, {})
                given.append(every.get(name) or unknown(f"it is an argument of `{node.name}`"))
            elif passed is not None:
                value = of.value(passed, site.scope)
                given.append(value.through(of.module.place(passed)))
            elif default is not None:
                given.append(default)
        if not any(value.is_known for value in given):
            annotated = self._annotated(name, node, scope)
            if annotated is not None:
                return annotated
        if not given:
            # A library that makes flags of parameters (fire, typer, click) may start it.
            flag = commands(module).get(node, {}).get(name)
            with_ = self.of.others.started_with.get(started_by(node, module, self.of.others) or module.file, {})
            named = with_.get(flag.flag.lstrip("-").replace("-", "_") if flag is not None else name)
            if named is None and f"no_{name}" in with_:
                named = Value(False, with_[f"no_{name}"].via)
            if named is not None:
                return named.through(module.place(flag.at if flag is not None else node, f"--{name}"))
            if flag is not None:
                said = self.of.value(flag.default, scope.parent or scope) if flag.default is not None else None
                return (said or unknown(declared.COMMAND_LINE)).through(module.place(flag.at, flag.flag))
            if default is not None:
                return default.through(module.place(node, name))
            return unknown(f"it is an argument of `{node.name}`, which nothing that was read calls")
        first = given[0]
        if all(value.value == first.value for value in given[1:]):
            return first
        others = tuple(value.value for value in given if value.is_known and not isinstance(value.value, Made))
        return unknown(f"it is an argument of `{node.name}`, which is called with several values", others=others[:8])

    def _more(self, node: Function, scope: Scope, module: Module) -> Value:
        """What `**kwargs` of a function holds by its call sites: an item that all of them give alike, or one that is not
        known for those that some give. Of a function that fire makes a command of: the flags that the command has beside its
        parameters', of which a command that nothing shows has none."""
        named = {argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
        every: list[dict[Any, Value]] = []
        for of, site in self._sites_of(node, scope, module):
            given = of.objects.arguments(site.node, site.scope, {})
            every.append({key: value for key, value in given.items() if not key.isdigit() and key not in named})
        others = self.of.others
        starter = started_by(node, module, others) if not every else ""
        if starter and starter not in others.started_variously:
            with_ = others.started_with.get(starter, {})
            every = [{key: value for key, value in with_.items() if key.isidentifier() and key not in named}]
        if not every or any(key in given for given in every for key in (HOLE, "*")):
            return unknown(f"it is an argument of `{node.name}`")
        items: dict[Any, Value] = {}
        for key in dict.fromkeys(key for given in every for key in given):
            values = [given[key] for given in every if key in given]
            alike = len(values) == len(every) and all(value.value == values[0].value for value in values)
            else_ = [value.value for value in values if value.is_known and not isinstance(value.value, Made)]
            items[key] = (
                values[0] if alike else unknown(f"some calls of `{node.name}` give it otherwise", others=else_[:8])
            )
        return Value(items, (module.place(node),))

    def _default(self, name: str, node: Function, scope: Scope) -> Value | None:
        arguments = [*node.args.posonlyargs, *node.args.args]
        outside = scope.parent or scope
        for argument, default in zip(reversed(arguments), reversed(node.args.defaults), strict=False):
            if argument.arg == name:
                return self.of.value(told_to_typer(default) or default, outside)
        for argument, other in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            if argument.arg == name and other is not None:
                return self.of.value(told_to_typer(other) or other, outside)
        return None

    def _annotated(self, name: str, node: Function, scope: Scope) -> Value | None:
        """Of a parameter whose annotation is a class of the project: an object with that one's defaults."""
        every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        annotation = next((argument.annotation for argument in every if argument.arg == name), None)
        if (
            isinstance(annotation, ast.Constant)
            and isinstance(annotation.value, str)
            and annotation.value.isidentifier()
        ):
            annotation = ast.copy_location(ast.Name(annotation.value), annotation)
        if not isinstance(annotation, (ast.Name, ast.Attribute)):
            return None
        found = declared.made_from_command_line(self.of, annotation, scope.parent or scope)
        known = isinstance(found.value, Made) and any(one.is_known for one in found.value.attributes.values())
        return found if known else None

    def _sites_of(self, node: Function, scope: Scope, module: Module) -> "list[tuple[Evaluator, Site]]":
        """Calls of a function, and of a class for its `__init__`: of this file by name, of others as they import it."""
        name = node.name
        if name == "__init__" and scope.parent is not None and isinstance(scope.parent.node, ast.ClassDef):
            name = scope.parent.node.name
        holder = scope.parent
        method = holder is not None and holder.is_class and name == node.name
        kind = ast.Attribute if method else ast.Name
        every = [*module.calls_by_name.get(name, ()), *module.started.get(name, ())]
        here = [(self.of, site) for site in every if isinstance(site.node.func, kind)][:MOST_CALLS]
        top = holder if holder is not None and holder.is_class else scope
        if here or top.parent is not module.top:
            return here
        if method and isinstance(top.node, ast.ClassDef):
            return list(self._of_objects(name, top.node.name, module))
        return list(self._imported(name, module))

    def _of_objects(self, method: str, name: str, module: Module) -> "Iterator[tuple[Evaluator, Site]]":
        """Calls of a method in files that import its class."""
        for other, site in self.of.others.calls_of(method)[:MOST_CALLS]:
            imports = any(dotted.rpartition(".")[2] == name for dotted in other.imports.values())
            if other is not module and imports and isinstance(site.node.func, ast.Attribute):
                yield self.of.elsewhere(other), site

    def _imported(self, name: str, module: Module) -> "Iterator[tuple[Evaluator, Site]]":
        """Calls in other files of what this one defines."""
        found = 0
        for other, site in self.of.others.calls_of(name):
            if other is module or found >= MOST_CALLS:
                continue
            dotted = other.dotted(site.node.func)
            led = files.module_of(dotted, other, self.of.others) if dotted else None
            if led is not None and led[1] == name and (led[0] is module or name in led[0].imports):
                found += 1
                yield self.of.elsewhere(other), site

    def _hydra(self, node: Function, scope: Scope) -> Value | None:
        """The configuration that `@hydra.main(config_path=..., config_name=...)` names."""
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and self.of.module.dotted(decorator.func) == "hydra.main":
                given = self.arguments(decorator, scope.parent or scope, {})
                folder, name = given.get("config_path"), given.get("config_name")
                if name is None or not isinstance(name.value, str):
                    return unknown("Hydra's configuration is named when the script runs")
                where = folder.value if folder is not None and isinstance(folder.value, str) else ""
                for ending in ("", ".yaml", ".yml"):
                    config = files.config_of(files.joined(where, name.value + ending), self.of.module, self.of.configs)
                    if config is not None:
                        return files.composition(config, self.of.configs)
                return unknown(f"Hydra's configuration `{name.value}` was not read")
        return None

    # Changes, items, attributes

    def changed(
        self,
        found: Value,
        changes: Sequence[Binding],
        before: tuple[int, int] | None,
        scope: Scope,
        frame: "Frame",
        applies: Callable[[Binding], bool | None],
    ) -> Value:
        """With attributes and items that are set between making it and using it."""
        made = found.value
        parts: dict[Any, Value] = dict(made if isinstance(made, dict) else made.attributes)
        loops = 0
        for change in changes:
            if before is not None and change.at >= before:
                continue
            if self.of.rounds.changed_in_one(change):
                loops += 1
                if loops > MOST_LOOPS:
                    parts[HOLE] = unknown(f"more than {MOST_LOOPS} loops change it")
                    break
                inside = change.scope or scope
                for key, value, holds, by_class in self.of.rounds.changes(change, inside, frame, applies):
                    self._in_a_loop(parts, change, key, value, holds, by_class)
                continue
            verdict = applies(change)
            if verdict is False:
                continue
            for key, value in self._new(change, scope, frame):
                if change.kind == "gone" and verdict is True:
                    parts.pop(key, None)
                    continue
                if change.kind == "default" and key in parts:
                    continue
                span = self.of.module.place(change.node, str(key)) if change.node is not None else None
                new = Value(value.value, value.via, value.others, span)
                old = parts.get(key)
                if verdict is None and old is not None:
                    extra = () if isinstance(new.value, (Unknown, Made)) else (new.value,)
                    new = Value(old.value, old.via, (*old.others, *extra), old.place)
                elif verdict is None:
                    new = unknown(
                        "it depends on a condition", others=() if isinstance(new.value, Unknown) else (new.value,)
                    )
                parts[key] = new
        if isinstance(made, dict):
            return Value(parts, found.via, found.others, found.place)
        return Value(Made(made.name, made.arguments, made.place, parts, made.element, made.open), found.via)

    def _in_a_loop(
        self, parts: dict[Any, Value], change: Binding, key: Any, value: Value, holds: bool | None, by_class: bool
    ) -> None:
        if not isinstance(key, (str, int)):
            return
        if change.kind == "gone":
            if holds is True:
                parts.pop(key, None)
        elif change.kind != "default" or key not in parts:
            put(parts, key, value, holds, by_class, self.of.module.place(change.node or ast.Pass()), old=True)

    def _new(self, change: Binding, scope: Scope, frame: "Frame") -> list[tuple[Any, Value]]:
        inside = change.scope or scope
        if change.kind == "update" and isinstance(change.value, ast.Call):
            given = self.arguments(change.value, inside, frame)
            first = given.pop("0", None)
            new = list(first.value.items()) if first is not None and isinstance(first.value, dict) else []
            if first is not None and not isinstance(first.value, dict):
                new = [(HOLE, first if not first.is_known else unknown(_RUNS))]
            return [*new, *given.items()]
        key = change.key
        if change.kind == "nested":
            node = key
            while isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.value, ast.Name):
                node = node.value
            key = (
                node.attr
                if isinstance(node, ast.Attribute)
                else node.slice
                if isinstance(node, ast.Subscript)
                else None
            )
        if isinstance(key, ast.expr):
            named = self.of.value(key, inside, frame)
            key = named.value if isinstance(named.value, (str, int)) else None  # type: ignore[assignment]
        if key is None:
            if change.kind in ("item", "default") and change.value is not None:
                return [(HOLE, unknown("it is given items whose names are known only when the script runs"))]
            return []
        if change.kind == "gone":
            return [(key, unknown(_RUNS))]
        if change.kind in ("unknown", "nested") or change.value is None:
            return [(key, unknown("it is changed before it is used"))]
        return [(key, self.of.value(change.value, inside, frame))]

    def item(self, owner: Value, key: Value) -> Value:
        held = owner.value
        if not key.is_known:
            return unknown("which part it is, is known only when the script runs")
        if isinstance(held, dict):
            found = held.get(key.value) if not isinstance(key.value, (list, dict, Made)) else None
            if not isinstance(found, Value) and HOLE in held:
                found = held[HOLE]
            return found if isinstance(found, Value) else unknown(f"there is no `{key.value}` in what was read")
        if isinstance(held, list) and isinstance(key.value, int) and -len(held) <= key.value < len(held):
            found = held[key.value]
            return found if isinstance(found, Value) else Value(found, owner.via)
        if isinstance(held, Made):
            return self.attribute(owner, str(key.value))
        return unknown(_RUNS)

    def attribute(self, owner: Value, name: str) -> Value:
        held = owner.value
        if isinstance(held, Names) and name in OF_NAMES:
            return owner
        if isinstance(held, Made):
            found = held.attributes.get(name) or held.arguments.get(name)
            if found is not None:
                return found
            return unknown(held.open or f"it is a part of what `{held.name}` makes")
        if isinstance(held, dict):
            found = held.get(name)
            return found if isinstance(found, Value) else unknown(f"there is no `{name}` in what was read")
        if isinstance(held, str) and name in ("parent", "name", "stem", "value"):
            if name == "value":  # of an enumeration's member, which is read as its value
                return owner
            path = posixpath.dirname(held) if name == "parent" else posixpath.basename(held)
            return Value(path.rpartition(".")[0] or path if name == "stem" else path, owner.via)
        return unknown(_RUNS)

    def of_self(self, name: str, scope: Scope) -> Value:
        holder: Scope | None = scope
        while holder is not None and not holder.is_class:
            holder = holder.parent
        if holder is None:
            return unknown(_RUNS)
        set_here = [change for change in holder.changes.get("self", ()) if change.key == name]
        if len(set_here) == 1 and set_here[0].value is not None and set_here[0].kind == "attribute":
            return self.of.value(set_here[0].value, set_here[0].scope or scope, {})
        if set_here:
            return unknown("it is set in several places of its class")
        return declared.fields(self.of, holder).get(name) or unknown(_RUNS)

    # Calls

    def arguments(self, node: ast.Call, scope: Scope, frame: "Frame") -> dict[str, Value]:
        """By keyword, positional ones by number; `**` stands for what could not be unpacked."""
        module = self.of.module
        found: dict[str, Value] = {}
        for number, argument in enumerate(node.args):
            if isinstance(argument, ast.Starred):
                found["*"] = unknown("it is unpacked when the script runs")
                break
            found[str(number)] = _at(self.of.value(argument, scope, frame), module.place(argument))
        for keyword in node.keywords:
            value = self.of.value(keyword.value, scope, frame)
            if keyword.arg is not None:
                found[keyword.arg] = _at(value, module.place(keyword, keyword.arg))
                continue
            held = value.value
            items = held.attributes if isinstance(held, Made) and not held.open and held.attributes else held
            if isinstance(items, dict):
                for key, item in items.items():
                    if isinstance(key, str) and isinstance(item, Value):
                        place = item.place or module.place(keyword, key)
                        found[key] = _at(item.through(module.place(keyword, key)), place)
            else:
                why = value if not value.is_known else unknown(_RUNS)
                found[HOLE] = _at(why, module.place(keyword.value, module.source(keyword.value)))
        return found

    def call(self, node: ast.Call, dotted: str, scope: Scope, frame: "Frame") -> Value:
        last = dotted.rpartition(".")[2]
        func = node.func
        if dotted in ("os.environ.get", "os.getenv"):
            return self._environment(self.arguments(node, scope, frame), node)
        if dotted == "torch.cuda.is_available":
            return Value(True, (self.of.module.place(node),))  # an audit is of training on a GPU
        if dotted in _OTHER_DEVICES:
            return Value(False, (self.of.module.place(node),))
        if dotted in ASKED_BY and len(node.args) == 1:
            names = names_of(self.of, node.args[0], scope, frame)
            if names is not None:
                return names
        if dotted in _OPENS_PATH or dotted in _OPENS:
            return self._loaded(self.arguments(node, scope, frame), dotted)
        if dotted in (
            "os.path.join",
            "pathlib.Path",
            "os.path.dirname",
            "os.path.abspath",
            "torch.device",
            "torch.dtype",
        ):
            return self._path(dotted, self.arguments(node, scope, frame))
        if dotted.startswith("absl.flags.DEFINE_"):
            flag = next(iter(declared.absl_flag(self.of, node, scope).values()), unknown(_RUNS))
            return Value(Made("absl.flags.FlagHolder", {}, self.of.module.place(node), {"value": flag}))
        if last == "parse_args" or (
            isinstance(func, ast.Attribute) and func.attr in ("parse_args", "parse_known_args")
        ):
            parsed = Value(Made("argparse.Namespace", {}, self.of.module.place(node), declared.flags(self.of, node)))
            several = isinstance(func, ast.Attribute) and func.attr == "parse_known_args"
            return Value([parsed, unknown(_RUNS)]) if several else parsed
        if isinstance(func, ast.Attribute) and func.attr.startswith(
            ("parse_args_", "parse_json", "parse_yaml", "parse_dict")
        ):
            parsed_classes = self._dataclasses(node, func, scope, frame)
            if parsed_classes is not None:
                return parsed_classes
        if isinstance(func, ast.Name) and not dotted:
            return self._named(func, node, scope, frame)
        if dotted:
            return self._qualified(dotted, last, node, scope, frame)
        return self._method(node, scope, frame)

    def _environment(self, given: dict[str, Value], node: ast.Call) -> Value:
        name = given["0"].value if "0" in given else None
        default = given.get("1") or given.get("default")
        if name in OF_LAUNCHERS:
            others = (default.value,) if default is not None and default.is_known else ()
            return unknown(f"the launcher sets `{name}`", others=others)
        place = self.of.module.place(node, f"${name}")
        given_there = declared.started(self.of).get(f"${name}")
        if given_there is not None and given_there.is_known:
            return given_there.through(place)
        exported = self.exported(name)
        if exported is not None:
            return exported
        if default is None or given_there is not None:
            others = (default.value,) if default is not None and default.is_known else ()
            return unknown(f"it comes from the environment variable `{name}`", others=others)
        return default.through(place)

    def exported(self, name: object) -> Value | None:
        """What the commands that start the script set a variable to, as the script gets it: a text."""
        found = self.of.others.exported.get(name) if isinstance(name, str) else None
        if found is None:
            return None
        given = found.given_value if isinstance(found.given_value, str) else found.value
        return Value(str(given), (found.place,)) if isinstance(given, str | int | float) else None

    def _loaded(self, given: dict[str, Value], dotted: str) -> Value:
        source = given.get("0")
        held = source.value if source is not None else None
        if isinstance(held, Made) and held.name in ("open", "io.open", "pathlib.Path.open"):
            source = held.arguments.get("0") or held.arguments.get("file")
            held = source.value if source is not None else None
        if source is not None and isinstance(held, Unknown):
            held = self._else_named(source)
        config = files.config_of(held, self.of.module, self.of.configs) if isinstance(held, str) else None
        if config is None and not isinstance(held, str):
            config = files.only_one_for(self.of.module, self.of.configs)
        if config is not None:
            return files.content(config)
        made = written(self.of, held if isinstance(held, str) else "")
        if made is not None:
            return made
        if not isinstance(held, str):
            return unknown("which file it reads, is known only when the script runs")
        return unknown(f"`{held}` was not read")

    def _else_named(self, path: Value) -> str | None:
        """The one file that is read where the command line names no other: `sys.argv[1] if ... else "sft.yaml"`."""
        named = [one for one in path.others if isinstance(one, str)]
        there = [one for one in named if files.config_of(one, self.of.module, self.of.configs) is not None]
        return there[0] if len(there) == len(named) == 1 else None

    def _path(self, dotted: str, given: dict[str, Value]) -> Value:
        parts = [value.value for name, value in given.items() if name.isdigit()]
        if not parts or not all(isinstance(part, str) for part in parts):
            return unknown(_RUNS)
        via = sum((value.via for value in given.values()), ())
        if dotted == "os.path.dirname":
            return Value(posixpath.dirname(parts[0]), via)
        return Value(parts[0] if dotted.startswith("torch") else files.joined(*parts), via)

    def _dataclasses(self, node: ast.Call, func: ast.Attribute, scope: Scope, frame: "Frame") -> Value | None:
        """What `HfArgumentParser((A, B)).parse_args_into_dataclasses()` gives."""
        made: ast.expr | None = func.value
        where = scope
        if isinstance(made, ast.Name):
            values = [b.value for b in self.of.module.bound(made.id, scope) if isinstance(b.value, ast.Call)]
            made = values[-1] if values else None
        if not isinstance(made, ast.Call) or (not made.args and not made.keywords):
            return None
        if self.of.module.dotted(made.func).rpartition(".")[2] not in (
            "HfArgumentParser",
            "TrlParser",
            "H4ArgumentParser",
        ):
            return None
        listed = made.args[0] if made.args else made.keywords[0].value
        classes = listed.elts if isinstance(listed, (ast.Tuple, ast.List)) else [listed]
        file = self._parsed_file(node, func.attr, scope, frame)
        # A file that a command names is read with the command.
        by_command = "1" in declared.started(self.of)
        alone = func.attr.startswith(("parse_json", "parse_yaml", "parse_dict")) and bool(file) and not by_command
        held = {one: declared.for_one(self.of, one, classes, where, file) if alone else file for one in classes}
        return Value([declared.made_from_command_line(self.of, one, where, held[one], alone) for one in classes])

    def _parsed_file(self, node: ast.Call, way: str, scope: Scope, frame: "Frame") -> dict[str, Value]:
        """The configuration that a parser of dataclasses reads: the one that the call names, else the command's: its first
        word, or `--config` of a parser that knows it."""
        given = self.arguments(node, scope, frame)
        named = next(iter(given.values()), None) if way.startswith(("parse_json", "parse_yaml", "parse_dict")) else None
        if named is not None and isinstance(named.value, dict):
            return {str(key): one for key, one in named.value.items() if isinstance(one, Value)}
        with_ = declared.started(self.of)
        if named is None or not isinstance(named.value, str):
            named = with_.get("config" if way == "parse_args_and_config" else "1")
        path = named.value if named is not None else None
        config = files.config_of(path, self.of.module, self.of.configs) if isinstance(path, str) else None
        held = files.content(config).value if config is not None else {}
        return {str(key): one for key, one in held.items()} if isinstance(held, dict) else {}

    def _named(self, func: ast.Name, node: ast.Call, scope: Scope, frame: "Frame") -> Value:
        given = self.arguments(node, scope, frame)
        if func.id in frame and isinstance(frame[func.id].value, ClassOf):
            return Value(Made(frame[func.id].value.name, given, self.of.module.place(node)))
        for binding in reversed(self.of.module.bound(func.id, scope)):
            if binding.kind == "class" and binding.node is not None:
                return declared.class_of(self.of, self.of.module.scopes[binding.node], given, node)
            if binding.kind == "function" and binding.node is not None:
                return self.returned(self.of.module.scopes[binding.node], given)
            if isinstance(binding.value, ast.Lambda) and not binding.path:
                return self._of_lambda(binding.value, given, scope)
        if func.id == "dict" and not node.args:
            return Value(dict(given))
        if func.id in _COLLECTIONS and not node.args and not node.keywords:
            return Value([])
        if func.id in (*_COLLECTIONS, "vars", "dict") and "0" in given:
            return self._collected(func.id, given)
        if func.id == "dir" and node.args:
            return names_of(self.of, node.args[0], scope, frame) or unknown(_RUNS)
        if func.id == "hasattr" and len(node.args) == 2 and isinstance(given["1"].value, str):
            names = names_of(self.of, node.args[0], scope, frame)
            inside = self.of.inside(given["1"].value, names.value) if names is not None else None
            return Value(inside) if inside is not None else unknown("it is decided when the script runs")
        if func.id == "getattr" and len(node.args) >= 2 and isinstance(given["1"].value, str):
            name = given["1"].value
            if self.of.module.dotted(node.args[0]) == "torch":
                return Value(name, given["1"].via)
            return self.attribute(given["0"], name) if given["0"].is_known else given["0"]
        if func.id == "open":
            return Value(Made("open", given, self.of.module.place(node)))
        return unknown(f"it is what `{func.id}(...)` gives when the script runs")

    def _of_lambda(self, function: ast.Lambda, given: dict[str, Value], scope: Scope) -> Value:
        """`flag = lambda name: os.environ.get(name) == "1"`, called."""
        names = [one.arg for one in function.args.args]
        frame = {names[int(key)] if key.isdigit() and int(key) < len(names) else key: one for key, one in given.items()}
        if set(frame) != set(names):
            return unknown(_RUNS)
        return self.of.value(function.body, self.of.module.scopes.get(function, scope), frame)

    def _collected(self, name: str, given: dict[str, Value]) -> Value:
        """`set(names)`, `vars(args)`, `dict(cfg, lr=1e-4)`, ..."""
        first = given["0"]
        held = first.value
        if name == "vars":
            return Value(dict(held.attributes), first.via) if isinstance(held, Made) else unknown(_RUNS)
        if isinstance(held, dict):
            if name != "dict":
                return Value([Value(key) for key in held if not left_out(key)], first.via)
            more = {key: item for key, item in given.items() if key != "0"}
            return Value({**held, **more}, first.via, (), first.place) if more else first
        pairs = [one.value for one in held if isinstance(one, Value)] if isinstance(held, list) else []
        if name == "dict" and pairs and all(isinstance(one, list) and len(one) == 2 for one in pairs):
            return Value({key.value: item for key, item in pairs if isinstance(key.value, (str, int))}, first.via)
        return first if isinstance(held, (list, Names)) else unknown(_RUNS)

    def _qualified(self, dotted: str, last: str, node: ast.Call, scope: Scope, frame: "Frame") -> Value:
        there = self.of.class_elsewhere(dotted)
        if there is not None:
            return declared.class_of(there[0], there[1], self.arguments(node, scope, frame), node)
        function = self.of.function_elsewhere(dotted)
        given = self.arguments(node, scope, frame)
        if function is not None:
            return function[0].objects.returned(function[1], given)
        if last in ("deepcopy", "copy", "create", "to_container", "asdict") and "0" in given:
            held = given["0"].value
            return Value(dict(held.attributes), given["0"].via) if isinstance(held, Made) else given["0"]
        if dotted == "dacite.from_dict" and len(node.args) == 2 and isinstance(node.args[0], ast.Name):
            made = self._made_of(node.args[0], given["1"], scope, node)
            if made is not None:
                return made
        if dotted in _PARSED_INTO and node.args:
            return declared.made_from_command_line(self.of, node.args[0], scope)
        if last == "instantiate" and dotted.startswith("hydra."):
            return self._instantiated(node, given, scope, frame)
        if dotted.endswith("OmegaConf.merge") and given:
            return self._merged([given[str(number)] for number in range(len(node.args)) if str(number) in given])
        if last in _NAMESPACES:
            first = given.get("0")
            held = first.value if first is not None else None
            if isinstance(held, dict):
                given = {**{key: one for key, one in held.items() if isinstance(key, str)}, **given}
            return Value(Made(last, given, self.of.module.place(node), given))
        return Value(Made(dotted, given, self.of.module.place(node)))

    def _merged(self, parts: list[Value]) -> Value:
        """Of mappings, the later ones over the earlier; what the command line may add is left to it."""
        known = [part for part in parts if isinstance(part.value, dict)]
        if not known:
            return parts[0]
        joint: dict[Any, Value] = {}
        for part in known:
            joint = files.over(joint, part.value)
        return Value(joint, known[0].via, (), known[0].place)

    def _instantiated(self, node: ast.Call, given: dict[str, Value], scope: Scope, frame: "Frame") -> Value:
        """What Hydra makes of a mapping with `_target_`: the call of that class, with the mapping's items."""
        mapping = self.of.value(node.args[0], scope, frame) if node.args else unknown(_RUNS)
        held = mapping.value
        target = held.get("_target_") if isinstance(held, dict) else None
        if not isinstance(held, dict) or not isinstance(target, Value) or not isinstance(target.value, str):
            return unknown(_RUNS)
        own = {key: item for key, item in held.items() if isinstance(item, Value) and not str(key).startswith("_")}
        more = {key: item for key, item in given.items() if not key.isdigit() and not key.startswith("_")}
        return Value(Made(target.value, own | more, mapping.place or self.of.module.place(node)))

    def _method(self, node: ast.Call, scope: Scope, frame: "Frame") -> Value:
        func = node.func
        if not isinstance(func, ast.Attribute):
            return unknown(_RUNS)
        if func.attr in _FROM_DICT and isinstance(func.value, ast.Name) and len(node.args) == 1:
            made = self._made_of(func.value, self.of.value(node.args[0], scope, frame), scope, node)
            if made is not None:
                return made
        owner = self.of.value(func.value, scope, frame)
        held = owner.value
        if func.attr in ("read_text", "read", "absolute") and isinstance(held, (str, Made)):
            return owner
        if isinstance(held, dict) and func.attr in ("get", "pop", "setdefault"):
            given = self.arguments(node, scope, frame)
            key, default = given.get("0"), given.get("1")
            if key is not None and isinstance(key.value, str):
                found = held.get(key.value)
                if not isinstance(found, Value) and HOLE in held:
                    found = held[HOLE]
                return found if isinstance(found, Value) else default or Value(None)
        if isinstance(held, dict) and func.attr in ("items", "keys", "values", "copy"):
            return _parts(owner, func.attr)
        if isinstance(held, Names) and func.attr in OF_NAMES | {"items", "values"}:
            return owner
        if isinstance(held, list) and func.attr in ("union", "intersection", "difference", "copy"):
            return self._of_sets(owner, func.attr, node, scope, frame)
        if isinstance(held, Names) and func.attr in ("union", "intersection", "difference"):
            return self._of_sets(owner, func.attr, node, scope, frame)
        if isinstance(held, Made) and held.attributes and func.attr in _AS_DICT:
            return Value(dict(held.attributes), owner.via)
        if isinstance(held, str) and func.attr in ("startswith", "endswith", "removeprefix", "removesuffix"):
            word = self.arguments(node, scope, frame).get("0")
            if word is None or not isinstance(word.value, str):
                return unknown(_RUNS)
            return Value(getattr(held, func.attr)(word.value), owner.via)
        if isinstance(held, str) and func.attr in ("joinpath", "lower", "upper", "strip"):
            if func.attr != "joinpath":
                return Value({"lower": held.lower, "upper": held.upper, "strip": held.strip}[func.attr](), owner.via)
            parts = [value.value for value in self.arguments(node, scope, frame).values()]
            return (
                Value(files.joined(held, *parts), owner.via)
                if all(isinstance(p, str) for p in parts)
                else unknown(_RUNS)
            )
        if func.attr in _SAME and owner.is_known:
            return owner
        if isinstance(func.value, ast.Name) and func.value.id == "self":
            holder: Scope | None = scope
            while holder is not None and not holder.is_class:
                holder = holder.parent
            for binding in holder.bindings.get(func.attr, ()) if holder is not None else ():
                if binding.kind == "function" and binding.node is not None:
                    return self.returned(self.of.module.scopes[binding.node], self.arguments(node, scope, frame), 1)
        if isinstance(held, Made) and owner.is_known:
            return Value(
                Made(f"{held.name}.{func.attr}", self.arguments(node, scope, frame), self.of.module.place(node))
            )
        return owner if not owner.is_known else unknown(_RUNS)

    def _made_of(self, name: ast.Name, items: Value, scope: Scope, node: ast.Call) -> Value | None:
        """`Settings.model_validate(raw)`, of a class of the project."""
        if not isinstance(items.value, dict):
            return None
        dotted = self.of.module.dotted(name)
        found = self.of.class_elsewhere(dotted) if dotted else None
        for binding in self.of.module.bound(name.id, scope):
            if binding.kind == "class" and binding.node is not None:
                found = self.of, self.of.module.scopes[binding.node]
        given = {key: item for key, item in items.value.items() if isinstance(key, str)}
        return declared.class_of(found[0], found[1], given, node) if found is not None else None

    def _of_sets(self, owner: Value, method: str, node: ast.Call, scope: Scope, frame: "Frame") -> Value:
        kind = {"union": ast.BitOr, "intersection": ast.BitAnd, "difference": ast.Sub}.get(method)
        if kind is None or len(node.args) != 1:
            return owner if kind is None else unknown(_RUNS)
        return self.of.arithmetic(
            kind(), owner, self._collected("set", {"0": self.of.value(node.args[0], scope, frame)})
        )

    def returned(self, scope: Scope, given: dict[str, Value], skip: int = 0) -> Value:
        """What a function of the project gives for these arguments; branches that depend on them are taken."""
        node = scope.node
        if not isinstance(node, FUNCTIONS) or not scope.returns:
            return unknown(_RUNS)
        names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)][skip:]
        known = {*names, *(argument.arg for argument in node.args.kwonlyargs)}
        frame: dict[str, Value] = {}
        rest: dict[Any, Value] = {}
        for key, value in given.items():
            if key.isdigit() and int(key) < len(names):
                frame[names[int(key)]] = value
            elif key in known:
                frame[key] = value
            elif not key.isdigit():
                rest[key] = value
        if node.args.kwarg is not None:
            frame[node.args.kwarg.arg] = Value(rest)
        for name in known - set(frame):
            default = self._default(name, node, scope)
            if default is not None:
                frame[name] = default
        return self.of.returned(scope, frame)


def _parts(owner: Value, method: str) -> Value:
    """`cfg.items()`, `cfg.keys()`, `cfg.values()`, `cfg.copy()`; what was left out of it is in none but the copy."""
    if method == "copy":
        return owner
    held = {key: item for key, item in owner.value.items() if not left_out(key)}
    keys = [Value(key, (), (), item.place) for key, item in held.items()]
    if method == "keys":
        return Value(keys, owner.via)
    if method == "values":
        return Value(list(held.values()), owner.via)
    return Value([Value([key, item]) for key, item in zip(keys, held.values(), strict=True)], owner.via)


def _at(value: Value, place: Place) -> Value:
    return Value(value.value, value.via, value.others, place)
