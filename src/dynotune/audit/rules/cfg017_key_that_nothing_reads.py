"""CFG017: a key of a script's own configuration that no script reads."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import FUNCTIONS, own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import loops, place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.read.configs.job import TRAINERS
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.rules.cfg009_flag_lost_on_the_way import SEEDS, SHOWN, WHOLE, left_by_launchers
from dynotune.audit.shapes.chains_of_hydra import CALLS_THAT_SHOW
from dynotune.audit.shapes.constants_that_nothing_reads import constants_that_nothing_reads
from dynotune.audit.shapes.falsy_values_dropped import falsy_values_dropped
from dynotune.audit.shapes.flags_that_nothing_reads import flags_that_nothing_reads
from dynotune.audit.shapes.items_that_nothing_reads import items_that_nothing_reads
from dynotune.audit.shapes.keys_of_own_classes import keys_of_own_classes
from dynotune.audit.shapes.misspelt_of_deepspeed import misspelt_of_deepspeed
from dynotune.audit.shapes.options_that_nothing_reads import options_that_nothing_reads
from dynotune.audit.shapes.unread_of_hydra import unread_of_hydra
from dynotune.audit.shapes.unread_of_loaded import unread_of_loaded
from dynotune.audit.shapes.what_the_run_has_instead import had_instead

_LOADING = (
    "import sys\n\nimport yaml\n\nKEYS = ('model', 'lr')\nwith open(sys.argv[1]) as file:\n    cfg = yaml.safe_load(file)\n"
    "print({key: cfg[key] for key in KEYS if key in cfg})\n"
)
_SCRIPT = (
    "import hydra\n\n\n@hydra.main(version_base=None, config_path='conf', config_name='config')\ndef main(cfg):\n"
    "    print(cfg.optim.lr, cfg.seed)\n\n\nmain()\n"
)


def check(project: Project, whole: Project) -> Iterator[Said]:
    for unread in unread_of_hydra(project):
        yield _finding(unread, project=project)
    flat = [one for one in _of_a_file(project) if isinstance(one, Finding)]
    said = {place.file for one in flat for place in (one.place, *one.also)}
    flat += [
        _finding(nested, f"of `{file}`", project) for file, nested in unread_of_loaded(project) if file not in said
    ]
    told = left_by_launchers(project) if flat else frozenset()
    yield from (one for one in flat if not {one.place, *one.also} <= told)
    yield from _of_a_class(project)
    yield from _filtered(project)
    yield from misspelt_of_deepspeed(project)
    yield from falsy_values_dropped(project)
    yield from flags_that_nothing_reads(project)
    yield from options_that_nothing_reads(project)
    yield from constants_that_nothing_reads(project)
    yield from (_finding(unread, f"of `{name}`", project) for name, unread in items_that_nothing_reads(project))


def _filtered(project: Project) -> Iterator[Said]:
    """Keys of a file that a script's class of options has not, and that the script leaves out without a word."""
    for lost in keys_of_own_classes(project):
        if not lost.filtered:
            continue
        shown = ", ".join(f"`{key}`" for key, _ in lost.keys[:4])
        yield Finding(
            f"{shown} of `{lost.config.file}` {'are' if len(lost.keys) > 1 else 'is'} dropped without a word: `{lost.name}`"
            " has no such field, and only what it has is handed on.",
            place=lost.keys[0][1],
            also=(*(place for _, place in lost.keys[1:]), lost.made),
            evidence=Evidence(Level.RESOLVED, {"dropped": [key for key, _ in lost.keys], "class": lost.name}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL, "Give the class these fields and use them, or stop at keys that it has not."
            ),
        )


def _of_a_class(project: Project) -> Iterator[Said]:
    """Fields of a project's own dataclass, or of a class that holds nothing but settings (`class CFG:`), which no file reads
    as an attribute or by a quoted name."""
    source = "\n".join(code(one) for one in project.scripts)
    homes = {file for job in project.jobs for file in job.files}
    given = {name for launch in project.launches if launch.script in homes for name in launch.flags}
    for script in project.scripts:
        program = connected(script, project)
        if not any(one.file in homes or any(loops(one)) for one in program) or _taken_whole(program):
            continue
        for node in script.tree.body:
            if not isinstance(node, ast.ClassDef) or node.bases or not _OPTIONS.search(node.name):
                continue
            marked = any("dataclass" in ast.unparse(one) for one in node.decorator_list)
            if not marked and (node.decorator_list or not _holds_settings(node)):
                continue
            fields = [
                one.target for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            ]
            if not marked:
                plain = [one.targets[0] for one in node.body if isinstance(one, ast.Assign)]
                fields += [one for one in plain if isinstance(one, ast.Name)]
            unread = [one for one in fields if not re.search(rf"\.{one.id}\b|[\"']{one.id}[\"']", source)]
            unread = [one for one in unread if one.id != "seed" or SEEDS.search(source)]
            unread = [one for one in unread if one.id not in given]  # CFG009's, where the command gives it
            if unread and 2 * len(unread) <= len(fields):
                yield _finding([(one.id, place_of(script, one)) for one in unread], f"of `{node.name}`")


def _holds_settings(node: ast.ClassDef) -> bool:
    """`class CFG: lr = 1e-5; epochs = 3`: four plain values at least, and nothing else."""
    said = [one for one in node.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    plain = [one for one in said if isinstance(one, ast.Assign | ast.AnnAssign) and isinstance(one.value, ast.Constant)]
    return len(plain) >= 4 and all(isinstance(one, ast.Assign | ast.AnnAssign) for one in said)


_NAMES_ALONE = re.compile(r"\{\s*(\w+)\.name\s+for \1 in (?:\w+\.)?fields\([\w.]+\)\s*\}")
"""Which keys a class takes, to refuse others: no value is read by it."""


def _taken_whole(program: Sequence[Script]) -> bool:
    """Something of the program gets all options at once."""
    source = _NAMES_ALONE.sub("", SHOWN.sub("", "\n".join(code(one) for one in program)))
    return WHOLE.search(source) is not None or bool(
        re.search(r"\*\*\w*(cfg|conf|config|args|opts?|params|settings)\b", source)
    )


_OPTIONS = re.compile(r"config|cfg|args|arguments|opt|param|setting|hyper", re.IGNORECASE)
"""What a class of options is called."""

_NOTES = frozenset(
    {"name", "description", "notes", "note", "comment", "version", "tags", "author", "date", "project", "title"}
)
"""Keys for people."""


def _of_a_file(project: Project) -> Iterator[Said]:
    """Keys of a file that a command names and its script loads by itself, key by key."""
    configs = {config.file: config for config in project.configs}
    quoted = {name for script in project.scripts for name in _QUOTED.findall(script.source)}
    attributes = {name for script in project.scripts for name in _ATTRIBUTE.findall(script.source)}
    for script in project.scripts:
        loaded = _loaded(script) if _LOAD.search(script.source) else []
        if len(loaded) != 1:
            continue
        named = {name for launch in project.launches if launch.script == script.file for name in launch.configs}
        for texts in ([script.source], project.documents.values()):  # what it says itself goes before a README
            named = named or {
                file for file in configs if any(re.search(rf"(?<![\w-]){re.escape(file)}\b", one) for one in texts)
            }
        if len(named) != 1 or not all(_by_key(name, room, project) for name, room in loaded):
            continue
        config = configs.get(named.pop())
        keys = [key for key in config.values if isinstance(key, str)] if config is not None else []
        read = quoted | (attributes if _OF_ATTRIBUTES.search(script.source) else set())
        unread = [key for key in keys if key not in read and key not in _NOTES and key[:1] not in "_."]
        if config is not None and unread and 2 * len(unread) <= len(keys):
            places = [(key, config.places.get(key, Place(config.file))) for key in unread]
            yield (
                _left_behind(script, places, config)
                if config.kind in TRAINERS
                else _finding(places, f"of `{config.file}`", project)
            )


def _left_behind(script: Script, places: Sequence[tuple[str, Place]], config: ConfigFile) -> Finding:
    """Of a trainer's own configuration, which a script of the project hands on key by key."""
    shown = ", ".join(f"`{name}`" for name, _ in places[:4]) + (
        f" and {len(places) - 4} more" if len(places) > 4 else ""
    )
    here = next((place_of(script, node) for node in script.tree.body if _lists(node, config)), Place(script.file))
    return Finding(
        f"`{script.file}` takes from `{config.file}` only keys that it names: {shown} stay behind, and what it starts has"
        " the trainer's defaults instead.",
        place=here,
        also=tuple(place for _, place in places),
        evidence=Evidence(Level.RESOLVED, {"left behind": [name for name, _ in places]}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Hand on the whole configuration and replace what differs.",
            accuracy="Runs then have what the configuration says.",
        ),
    )


def _lists(node: ast.stmt, config: ConfigFile) -> bool:
    """`KEYS = [...]`, of names that the configuration has."""
    held = node.value if isinstance(node, ast.Assign) else None
    named = [one.value for one in held.elts if isinstance(one, ast.Constant)] if isinstance(held, _COLLECTIONS) else []
    return len(named) > 2 and sum(name in config.values for name in named) * 2 > len(named)


_COLLECTIONS = (ast.List, ast.Tuple, ast.Set)


_QUOTED = re.compile(r"[\"'](\w+)[\"']")
_ATTRIBUTE = re.compile(r"\.(\w+)\b")
_OF_ATTRIBUTES = re.compile(r"OmegaConf|Namespace|Munch|EasyDict|\bBox\(|DotDict|AttrDict", re.IGNORECASE)
_LOAD = re.compile(r"\.(safe_|full_)?loads?\(")
_LOADS = re.compile(r"(yaml\.(safe_|full_)?load|json\.loads?|tomllib\.loads?|OmegaConf\.load)$")


def _loaded(script: Script) -> list[tuple[str, ast.AST]]:
    """Variables that the content of a file goes into, each with the function, or the file, that it is one of."""
    found: list[tuple[str, ast.AST]] = []
    for room in (script.tree, *(node for node in ast.walk(script.tree) if isinstance(node, ast.FunctionDef))):
        for node in own_nodes(room, (*FUNCTIONS, ast.ClassDef)):
            call = node.value if isinstance(node, ast.Assign) else None
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            if isinstance(call, ast.Call) and isinstance(target, ast.Name) and _LOADS.search(ast.unparse(call.func)):
                found.append((target.id, room))
    return found


def _by_key(name: str, room: ast.AST, project: Project, depth: int = 0) -> bool:
    """Every use of the mapping takes a key out by its name: nothing gets it whole but the project's own functions, of which
    the same holds, and what shows or keeps it."""
    if depth > 3:
        return False
    above = {child: node for node in ast.walk(room) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(room):
        if not isinstance(node, ast.Name) or node.id != name or isinstance(node.ctx, ast.Store):
            continue
        parent = above[node]
        match parent:
            case ast.Subscript(value=value, slice=ast.Constant() | ast.Name()) if value is node:
                continue
            case ast.Attribute(attr="get" | "pop" | "setdefault"):
                continue
            case ast.Compare():
                continue
            case ast.Call() if node in parent.args:
                last = parent.func.attr if isinstance(parent.func, ast.Attribute) else getattr(parent.func, "id", "")
                if last in CALLS_THAT_SHOW or last in ("dump", "dumps", "len", "isinstance"):
                    continue
                taker = _function(last, project.scripts)
                at = parent.args.index(node)
                if taker is None or at >= len(taker.args.args):
                    return False
                if not _by_key(taker.args.args[at].arg, taker, project, depth + 1):
                    return False
            case _:
                return False
    return True


def _function(name: str, scripts: Sequence[Script]) -> ast.FunctionDef | None:
    """The project's only function of this name."""
    found = [
        node
        for one in scripts
        for node in ast.walk(one.tree)
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    return found[0] if len(found) == 1 else None


def _finding(
    unread: Sequence[tuple[str, Place]], whose: str = "of Hydra's configuration", project: Project | None = None
) -> Finding:
    shown = ", ".join(f"`{name}`" for name, _ in unread[:3])
    more = f" and {len(unread) - 3} more" if len(unread) > 3 else ""
    them = "it" if len(unread) == 1 else "them"
    instead = list(had_instead(unread, project)) if project is not None else []
    has = ", ".join(f"`{called}: {value}`" for _, called, value in instead[:3])
    return Finding(
        f"No script reads {shown}{more} {whose}: to set {them} does nothing{f', and the run has {has}' if has else ''}.",
        place=unread[0][1],
        also=tuple(place for _, place in unread[1:]),
        evidence=Evidence(Level.RESOLVED, {"unread": [name for name, _ in unread]}),
        stake=Stake(AtStake.CLARITY if not instead else AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL if instead else Risk.OPERATIONAL,
            f"Hand it on (`{instead[0][1]}=...`), or take it out."
            if instead
            else "Read it where it was meant to work, or take it out.",
        ),
    )


RULE = Rule(
    code="CFG017",
    name="key-that-nothing-reads",
    summary="A key of a script's own configuration is read by no script.",
    group=Group.CONFIGURATION,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="A script under `@hydra.main`, or one that loads a YAML or JSON file itself, gets the whole configuration and"
        " takes out what it needs. A key that it never takes is a switch without a wire.",
        why="Who sets it believes that it works, compares runs by it, and writes it down.",
        detected="E1: every use of the configuration is followed as a chain of attributes (`cfg.train.steps`), through"
        " functions of the project that take it under the same name. A mapping that is used whole counts as read, and so do"
        " keys that `${...}` or a quoted name mentions. Where the configuration goes elsewhere, nothing is said. Of a file"
        " that a command names and its script loads: the keys of its first level, where the script takes each by its name"
        " (`cfg['lr']`, `{key: cfg[key] for key in KEYS}`). Fields of a dataclass of"
        " options that no file reads; items of a dictionary of settings in code whose others are taken by their keys;"
        " constants of a file that trains, named as settings are"
        " (`MAX_LEN = 2048`), that no line reads; keys that"
        " such a class has not, where the script filters by its fields."
        " Flags of a training script's own parser that no file reads; parameters of a function that click, typer, fire or"
        " tyro starts, and that it does not use; fields of a class that a parser of classes fills."
        " Keys of a DeepSpeed file that are known ones but for a slip."
        " Keys that are false or zero, where a launcher in Python makes flags of a configuration and leaves such ones out,"
        " and the script has another default.",
        proven="Search the scripts for its name.",
        deliberate=("A key that is kept for the record of the run.",),
        sources=(),
    ),
    bad=Example(
        {"conf/config.yaml": "optim:\n  lr: 1.0e-5\n  smoothing: 0.1\nseed: 1\n", "train.py": _SCRIPT},
        says="No script reads `optim.smoothing`",
    ),
    also_bad=(
        Example(
            {
                "run.yaml": "model: a/b\nlr: 1.0e-5\nbeta: 0.3\n",
                "train.py": _LOADING,
                "run.sh": "python train.py run.yaml\n",
            },
            says="`beta` of `run.yaml`",
        ),
    ),
    good=Example({"conf/config.yaml": "optim:\n  lr: 1.0e-5\nseed: 1\n", "train.py": _SCRIPT}),
)
