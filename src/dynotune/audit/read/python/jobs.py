"""The training jobs that a script makes, with constants followed through its project's files."""

import ast
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.job import Fate, GivenKey, Hole, Job, Trainer
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.setting import Known, Setting, Unknown
from dynotune.audit.place import NOWHERE, Place
from dynotune.audit.read.configs.settings import Given, anothers, job_from
from dynotune.audit.read.python.checkpointing import checkpointing_enabled
from dynotune.audit.read.python.cut_at import with_length
from dynotune.audit.read.python.dataset import loaded, of_dataset
from dynotune.audit.read.python.evaluator import Evaluator
from dynotune.audit.read.python.loops import loop_job
from dynotune.audit.read.python.model import Said, argument, of_adapter, of_arguments, of_init_kwargs, of_model
from dynotune.audit.read.python.module import Module, Site
from dynotune.audit.read.python.modules import Modules
from dynotune.audit.read.python.recognised import (
    CONFIGS,
    FROM_A_COMMAND_LINE,
    ONCE_OF_TRAINERS,
    TRAINERS,
    Whose,
    class_name,
    taken_as,
    whose,
)
from dynotune.audit.read.python.value import HOLE, LEFT_OUT, Made, Value, left_out, plain, setting, unknown
from dynotune.audit.schema import Keys, Schemas
from dynotune.audit.schema.keys import earlier
from dynotune.audit.schema.moved import LATER_CALLS, TRAINER_CALLS, TRANSFORMERS_CALLS


def jobs_of(
    script: Script,
    others: Mapping[str, Script],
    schemas: Schemas,
    configs: Mapping[str, ConfigFile],
    modules: Modules | None = None,
) -> list[Job]:
    """One for each trainer that the script makes, each set of arguments that no trainer gets, or each loop of its own.

    others: the project's scripts by file, and modules the same with their names, for what is imported from them. A setting
    whose value comes from argparse or a dataclass has the flag in its trail (`Setting.via`, with the key `--lr`): a
    launcher's flag replaces it.
    """
    if script.unread or not script.calls:
        return []
    if modules is None:
        modules = Modules()
        modules.update({name: Module(name, other.source, other.tree) for name, other in others.items()})
    module = modules[script.file]
    evaluator = Evaluator(module, modules, configs)
    unsloth = any(name.startswith("unsloth") for name in module.imports.values())
    made: list[tuple[Site, Whose]] = []
    given: list[tuple[Site, Whose]] = []
    for site in module.sites:
        name = class_name(evaluator.fresh(), site)
        trainer, config = whose(name, TRAINERS, unsloth=unsloth), whose(name, CONFIGS, unsloth=unsloth)
        if trainer is not None and not _inside_its_class(site):
            made.append((site, trainer))
        elif config is not None and not _inside_its_class(site):
            given.append((site, config))
    jobs = [_of_trainer(evaluator, site, who, given, schemas) for site, who in made]
    if not made and not _trained_elsewhere(script, others):
        jobs += [_of_config(evaluator, site, who, schemas) for site, who in given]
    if not jobs and not made:
        looped = loop_job(evaluator)
        jobs = [looped] if looped is not None else []
    environment = _environment(evaluator) if "environ" in script.source else {}
    jobs = [with_length(job, evaluator) for job in jobs]
    return [replace(job, environment={**environment, **job.environment}) for job in jobs]


def _inside_its_class(site: Site) -> bool:
    """`super().__init__(...)` and class attributes are no jobs."""
    return isinstance(site.node.func, ast.Attribute) and site.node.func.attr == "__init__"


def _trained_elsewhere(script: Script, others: Mapping[str, Script]) -> bool:
    """Another file makes a trainer and imports from this one: the arguments made here are that one's job."""
    stem = script.file.rpartition("/")[2].removesuffix(".py")
    for name, other in others.items():
        imported = any(stem in dotted.lstrip(".").split(".") for dotted in other.imports.values())
        if name != script.file and imported and any(call.name.rpartition(".")[2] in TRAINERS for call in other.calls):
            return True
    return False


def _of_trainer(
    evaluator: Evaluator, site: Site, who: Whose, configs: list[tuple[Site, Whose]], schemas: Schemas
) -> Job:
    module = evaluator.module
    call = Made(
        module.dotted(site.node.func),
        evaluator.fresh().objects.arguments(site.node, site.scope, {}),
        module.place(site.node),
    )
    args = argument(call, "args", "1")
    held = args.value if args is not None else None
    if not isinstance(held, Made) and len(configs) == 1:
        only = configs[0][0]
        args = evaluator.fresh().value(only.node, only.scope)
        held = args.value
    if isinstance(held, Made):
        of_class = whose(held.name, CONFIGS, unsloth=who[0] is Trainer.UNSLOTH)
        if of_class is not None and who[1] is None:
            who = of_class
    said = list(of_arguments(held)) if isinstance(held, Made) else []
    lost = None
    if args is not None and args.value is not None and (not isinstance(held, Made) or not whose(held.name, CONFIGS)):
        why = (
            args.value.why
            if isinstance(args.value, Unknown)
            else f"`{held.name}` makes it"
            if isinstance(held, Made)
            else ""
        )
        lost = Value(
            Unknown(why or "it is no configuration that is known"),
            args.via,
            (),
            replace(args.place or call.place, key=""),
        )
        said = []
    model = argument(call, "model", "0")
    by_name = model is not None and not model.is_known and _is_a_name(site.node)
    beside = [*of_model(model), *checkpointing_enabled(evaluator)]
    if by_name and model is not None:
        beside.append(Said("model_name_or_path", "model", model, model.place or call.place))
    peft = argument(call, "peft_config")
    beside += of_adapter(peft)
    init = next((one.value for one in said if one.name == "model_init_kwargs"), None)
    init = init or argument(call, "model_init_kwargs")
    beside += of_init_kwargs(init)
    beside += [
        Said(name, name, value, value.place or call.place)
        for name, value in call.arguments.items()
        if name in ONCE_OF_TRAINERS
    ]
    rows = next((keyword.value for keyword in site.node.keywords if keyword.arg == "train_dataset"), None)
    data = loaded(evaluator, rows, site.scope)
    beside += of_dataset(data) if data is not None else []
    home = held.place if isinstance(held, Made) else call.place
    job = _job(said, beside, who, home, evaluator, schemas, held, lost)
    given = [*job.given, *_of_the_call(call, who, taken_as(evaluator.fresh(), site), schemas.keys(*who))]
    job = replace(job, given=given, makes_rows=data is not None and data.changed)
    settings = dict(job.settings)
    wrapped = (
        "peft.get_peft_model" in evaluator.module.imports.values()
    )  # under a condition: else the model says so itself
    if (
        "use_peft" not in settings
        and (peft is None or peft.value is None)
        and not wrapped
        and (by_name or _model_is_known(model))
    ):
        settings["use_peft"] = Setting("use_peft", False, NOWHERE, Known.DEFAULT)
    if who[0] is Trainer.TRL and "dtype" not in settings and model is not None and isinstance(model.value, str):
        settings["dtype"] = Setting("dtype", "float32", NOWHERE, Known.DEFAULT)  # TRL's for a model given by name
    return replace(job, settings=settings)


def _of_the_call(call: Made, who: Whose, base: str, keys: Keys) -> Iterator[GivenKey]:
    """Arguments of the trainer itself that its version no longer takes, or does not take yet. base: the library's class;
    a subclass of the project's with an `__init__` of its own may take any."""
    package, _, last = base.partition(".")
    if who[0] not in (Trainer.TRL, Trainer.TRANSFORMERS):
        return  # Unsloth takes what its own version of the class does
    if base in ("trl.SFTTrainer", "trl.DPOTrainer"):
        moved = TRAINER_CALLS
    elif package == "transformers" and last.rpartition(".")[2] in ("Trainer", "Seq2SeqTrainer"):
        moved = TRANSFORMERS_CALLS
    else:
        return
    taken = replace(keys, keys={}, moved=moved, own=frozenset())
    for name, value in call.arguments.items():
        verdict = taken.fate(name)
        place = replace(value.place or call.place, key=name)
        if verdict.fate in (Fate.RENAMED, Fate.REMOVED):
            yield GivenKey(name, plain(value.value), place, verdict.fate, verdict.why, verdict.instead)
        since, before = LATER_CALLS[package].get(name, ("", ""))
        asked = keys.pinned.get(package) or keys.versions.get(package, "")
        if since and asked and before not in call.arguments and earlier(asked, since):
            why = f"`{last.rpartition('.')[2]}` takes it from {package} {since} on, and calls it `{before}` in {asked}"
            yield GivenKey(name, plain(value.value), place, Fate.RENAMED, why, before)


def _is_a_name(call: ast.Call) -> bool:
    """The trainer is given its model by a name that a parser reads (`model=model_args.model_name_or_path`)."""
    given = next((one.value for one in call.keywords if one.arg == "model"), call.args[0] if call.args else None)
    return isinstance(given, ast.Attribute) and given.attr in ("model_name_or_path", "model_name", "model_id")


def _model_is_known(model: Value | None) -> bool:
    held = model.value if model is not None else None
    if isinstance(held, Made):
        return held.name.rpartition(".")[2] in ("from_pretrained", "from_config")
    return isinstance(held, str)


def _of_config(evaluator: Evaluator, site: Site, who: Whose, schemas: Schemas) -> Job:
    value = evaluator.fresh().value(site.node, site.scope)
    held = value.value
    said = list(of_arguments(held)) if isinstance(held, Made) else []
    home = evaluator.module.place(site.node)
    return _job(said, [], who, home, evaluator, schemas, held)


def _job(
    said: Iterable[Said],
    beside: Iterable[Said],
    who: Whose,
    home: Place,
    evaluator: Evaluator,
    schemas: Schemas,
    held: object,
    lost: Value | None = None,
) -> Job:
    """said: keys of the arguments' class, which are judged. beside: settings from elsewhere, which are not. lost: what the
    trainer gets in place of arguments that could be followed."""
    module = evaluator.module
    said = [one for one in said if one.name not in ("**", "*")]
    keys = schemas.keys(*who, held.name.rpartition(".")[2] if isinstance(held, Made) else "")
    given = [
        Given(
            one.given_as,
            plain(one.value.value),
            one.place,
            Known.FOLLOWED if one.value.via else Known.GIVEN,
            one.value.via,
        )
        for one in said
    ]
    hole = _hole(held, lost, keys, home, module)
    unread = hole is not None
    job = job_from(given, keys, home=home)
    job = replace(job, given=[*job.given, *_left_out(held, keys, evaluator)], holes=() if hole is None else (hole,))
    native = dict(job.native)
    settings = {
        name: _with_others(one, said)
        for name, one in job.settings.items()
        if one.known is not Known.DEFAULT or name not in FROM_A_COMMAND_LINE
    }
    if unread:
        why = held.open if isinstance(held, Made) and held.open else "it is unpacked when the script runs"
        settings = {
            name: replace(one, value=Unknown(why), others=(one.value,)) if one.known is Known.DEFAULT else one
            for name, one in settings.items()
        }
    for one in beside:
        found = setting(one.name, one.value, one.place, given_as=one.given_as)
        earlier = settings.get(one.name)
        if earlier is not None and earlier.known is not Known.DEFAULT and earlier.value is True and not found.value:
            continue
        renamed = {"max_seq_length": "max_length"}.get(one.name, one.name)
        settings[renamed] = replace(found, name=renamed, given_as=one.given_as if one.given_as != renamed else "")
    places = [place for one in settings.values() for place in (one.place, *one.via)]
    named = tuple(dict.fromkeys([module.file, home.file, *(place.file for place in places if place.file)]))
    return replace(job, settings=settings, native=native, files=named)


def _hole(held: object, lost: Value | None, keys: Keys, home: Place, module: Module) -> Hole | None:
    """What of a configuration object could not be followed."""
    if lost is None and isinstance(held, Made):
        lost = held.arguments.get(HOLE) or held.attributes.get(HOLE)
        if lost is None and held.open:
            lost = unknown(held.open)
    if lost is None:
        return None
    place = lost.place or home
    what = (
        f"`**{place.key}`"
        if place.key.strip("*")
        else f"`{module.source_at(place)}`"
        if place.file == module.file
        else "it"
    )
    why = lost.value.why if isinstance(lost.value, Unknown) else "it is computed when the script runs"
    return Hole(replace(place, key=""), f"what {what} holds could not be followed: {why}", frozenset(keys.keys))


def _left_out(held: object, keys: Keys, evaluator: Evaluator) -> Iterator[GivenKey]:
    """Keys that a filter by what the class takes has left out, where they were meant for it and nothing else reads them."""
    if not isinstance(held, Made):
        return
    for key, value in {**held.arguments, **held.attributes}.items():
        if not left_out(key):
            continue
        name = key.removeprefix(LEFT_OUT)
        filtered = next((replace(one, key="") for one in value.via if one.key == LEFT_OUT), held.place)
        if name in keys.own or name.isdigit() or not name.isidentifier() or _heard_of(name, filtered, evaluator):
            continue
        place = value.place or filtered
        verdict = replace(keys, pinned={}, versions={**keys.versions, **keys.pinned}).fate(name)
        theirs = anothers(name, keys)
        if verdict.instead in held.arguments or verdict.instead in held.attributes:
            continue  # one file for older and newer versions
        if verdict.fate in (Fate.RENAMED, Fate.REMOVED):
            yield GivenKey(name, plain(value.value), place, verdict.fate, verdict.why, verdict.instead, filtered)
        elif theirs is not None and theirs[1] in keys.keys:
            yield GivenKey(name, plain(value.value), place, Fate.ANOTHERS, *theirs, filtered)
        elif difflib.get_close_matches(name, keys.keys, 1, 0.85):
            yield GivenKey(name, plain(value.value), place, Fate.UNKNOWN, left_out=filtered)


_SAYS_SO = re.compile(r"\braise\b|\bassert\b|\bexit\(|\bwarn|ignor|unknown|unused|skipp|dropp", re.IGNORECASE)

_THE_REST = re.compile(
    r"\bif \w+ not in [\w.]+ *[}\])]|\.keys\(\) *[-^]|\bset\([\w.]+\) *(?:!=|-|\^)|\.(?:symmetric_)?difference\("
)
"""What is left over is asked for: shown, refused, or handed to somebody else."""

_FILTERED_BY = re.compile(
    r"\b(?:fields|signature|getfullargspec|get_type_hints)\(\s*([A-Za-z_]\w*)"
    r"|([A-Za-z_]\w*)\.(?:__init__|__annotations__|__dataclass_fields__|model_fields)"
)
_READ = re.compile(r"\.(\w+)\b|[\"'](\w+)[\"']|^ +(\w+)\s*:", re.MULTILINE)


@lru_cache(maxsize=64)
def _read_by(module: Module) -> frozenset[str]:
    """Names that a script reads as attributes, in quotes, or as fields."""
    return frozenset(name for found in _READ.findall("\n".join(module.lines)) for name in found if name)


@lru_cache(maxsize=64)
def _filters(module: Module) -> tuple[bool, frozenset[str]]:
    """Whether a script asks for what a filter leaves over, and the classes by which it filters that are not its own."""
    text = "\n".join(module.lines)
    names = {name for found in _FILTERED_BY.findall(text) for name in found if name}
    own = set(re.findall(r"^class (\w+)", text, re.MULTILINE))
    return _THE_REST.search(text) is not None, frozenset(name for name in names - own if name[:1].isupper())


def _heard_of(name: str, filtered: Place, evaluator: Evaluator) -> bool:
    """Whether a script of the project reads a key itself, hands what is left over to somebody, or says that it is left."""
    for module in evaluator.others.values():
        if name in _read_by(module):
            return True
        if module.file != filtered.file:
            continue
        rest, classes = _filters(module)
        around = module.lines[max(filtered.line - 6, 0) : filtered.end_line + 5]
        if rest or len(classes) > 1 or _SAYS_SO.search("\n".join(around)):
            return True
    return False


def _with_others(one: Setting, said: Iterable[Said]) -> Setting:
    called = one.given_as or one.name
    value = next((each.value for each in said if each.given_as == called), None)
    if value is None or not value.others:
        return one
    others = tuple(other for other in map(plain, value.others) if not isinstance(other, Unknown))
    return replace(one, others=others)


def _environment(evaluator: Evaluator) -> dict[str, Setting]:
    """Variables that the script sets for itself."""
    found: dict[str, Setting] = {}
    module = evaluator.module
    for scope in module.scopes.values():
        for change in scope.changes.get("os", ()):
            target = change.key
            if not isinstance(target, ast.Subscript) or module.dotted(target.value) != "os.environ":
                continue
            name = target.slice.value if isinstance(target.slice, ast.Constant) else None
            if isinstance(name, str) and change.value is not None and change.node is not None:
                value = evaluator.fresh().value(change.value, scope)
                found[name] = setting(name, value, module.place(change.node, name))
    return found
