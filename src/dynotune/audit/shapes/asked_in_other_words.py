"""16 bits are asked for by a name, a spelling or a section that the program does not look for: its own default holds."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynotune.audit.facts.asked import on_gpu
from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_NAME = re.compile(
    r"(?:\w+_)?(?:precision|amp|amp_dtype|autocast|bf16|fp16|compute_dtype|train_dtype|dtype)(?:_\w+)?", re.IGNORECASE
)
_OTHERS = re.compile(r"infer|eval|serv|export|save|torch_dtype|model_dtype|bnb|ACCELERATE|matmul", re.IGNORECASE)
_SPELLINGS = (
    frozenset({"bf16", "bfloat16", "bf16-mixed", "torch.bfloat16", "amp_bf16"}),
    frozenset({"fp16", "float16", "half", "16-mixed", "torch.float16", "amp_fp16"}),
)
_FULL = frozenset({"fp32", "float32", "no", "32", "none", "off", "0", "false", ""})
_FREE = re.compile(
    r"startswith\(|endswith\("
    r"|getattr\(\s*torch|\.replace\(|\.lower\(\)\s*in\b|mixed_precision\s*=|Fabric\(|eval\(|\bin str\("
)
"""What takes a spelling that stands nowhere."""


@dataclass(frozen=True, slots=True)
class _Wish:
    name: str
    value: object
    place: Place
    section: str = ""
    of_environment: bool = False


def asked_in_other_words(job: Job, project: Project) -> Iterator[Said]:
    main = next((one for one in project.scripts if one.file == job.home.file), None)
    if main is None or not on_gpu(job) or job.get("mixed_precision") not in (None, "no"):
        return
    program = connected(main, project)
    sources = "\n".join(code(one) for one in program)
    for wish in (*_of_files(job, project, sources), *_of_launches(program, project)):
        found = None
        if wish.of_environment:
            found = _read_by_another_name(wish, program, sources)
        elif job.trainer is Trainer.TORCH and isinstance(wish.value, str):
            found = _compared_with_another(wish, program, sources)
        if found is None and wish.section:
            found = _of_another_section(wish, job, program)
        if found is not None:
            yield _said(wish, *found)
            return


def _said(wish: _Wish, place: Place, why: str, instead: str) -> Finding:
    shown = f"{wish.section}.{wish.name}" if wish.section else wish.name
    value = str(wish.value).lower() if isinstance(wish.value, bool) else wish.value
    return Finding(
        f"`{shown}: {value}` asks for 16 bits, and {why}: the run computes in float32.",
        place=place,
        evidence=Evidence(Level.RESOLVED, {"asked": wish.value, "at": f"{wish.place.file}:{wish.place.line}"}),
        stake=Stake(AtStake.TIME, 0.5, 0.9, "float32 products run past the matrix units, or as TF32 at half the rate"),
        remedy=Remedy(
            Risk.NUMERIC,
            instead,
            accuracy="Products round to 16 bits; the weights keep their type.",
            measure="dynotune profile -- python train.py",
        ),
        also=(wish.place,),
    )


def _is_asked(name: str, value: object) -> bool:
    if not _NAME.fullmatch(name) or _OTHERS.search(name):
        return False
    if isinstance(value, str):
        return any(value.lower() in one for one in _SPELLINGS) or (value == "1" and "16" in name)
    return value is True and "16" in name


def _of_files(job: Job, project: Project, sources: str) -> Iterator[_Wish]:
    """Of the program's own configurations: that the job is made of, that its files name, or that have its keys."""
    own = [one for one in project.configs if one.kind == "unknown" and _asks_for_its_keys(one, sources)]
    for config in project.configs:
        named = config.file in job.files or config.file.rpartition("/")[2] in sources or own == [config]
        if config.kind != "unknown" or not named:
            continue
        for path, place in config.places.items():
            before, _, key = path.rpartition(".")
            if _is_asked(key, config.at(path)):
                yield _Wish(key, config.at(path), place, before)


def _asks_for_its_keys(config: ConfigFile, sources: str) -> bool:
    """A program that reads the file which it is given asks for most of its sections by their names."""
    if not re.search(r"safe_load|yaml\.load|json\.load|tomllib|OmegaConf\.load", sources):
        return False
    asked = [key for key in map(str, config.values) if re.search(rf"[\"'.]{re.escape(key)}\b", sources)]
    return len(asked) >= 3 and len(asked) * 2 > len(config.values)


def _of_launches(program: Sequence[Script], project: Project) -> Iterator[_Wish]:
    files = {one.file for one in program}
    for launch in project.launches:
        if launch.script in files:
            for name, setting in launch.flags.items():
                if _is_asked(name, setting.value):
                    yield _Wish(name, setting.value, setting.place)
            for name, setting in launch.variables.items():
                if _is_asked(name, setting.given_value):
                    yield _Wish(name, setting.given_value, setting.place, of_environment=True)


def _texts(program: Sequence[Script]) -> set[str]:
    return {
        node.value.lower()
        for one in program
        for node in ast.walk(one.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _compared_with_another(wish: _Wish, program: Sequence[Script], sources: str) -> tuple[Place, str, str] | None:
    """The option is held against another spelling of the type, and this one stands nowhere in the program."""
    value = str(wish.value).lower()
    texts = _texts(program)
    alike = next((one - {value} for one in _SPELLINGS if value in one), frozenset[str]())
    if value in texts or not alike & texts or _FREE.search(sources):
        return None
    for script in program:
        for node in ast.walk(script.tree):
            held = _held_against(node, wish.name, script) & alike
            if held:
                other = sorted(held)[0]
                return (
                    place_of(script, node),
                    f"`{ast.unparse(node)[:60]}` looks for `{other}`",
                    f"Write `{wish.name}: {other}`, or take both spellings, and stop at one that is not known.",
                )
    return None


def _held_against(node: ast.AST, name: str, script: Script) -> set[str]:
    """The texts that an expression of this name is compared with, or looked up among."""
    asked: ast.expr | None = None
    texts: Sequence[ast.AST] = ()
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.In):
        asked, texts = node.left, [one for side in node.comparators for one in ast.walk(side)]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        asked, texts = node.args[0], _keys(node.func.value, script)
    if asked is None or not re.search(rf"(?<![a-z]){re.escape(name)}[\"'\])]*$", ast.unparse(asked)):
        return set()
    return {one.value.lower() for one in texts if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def _keys(node: ast.expr, script: Script) -> list[ast.AST]:
    if isinstance(node, ast.Name):
        made = [one.value for one in ast.walk(script.tree) if isinstance(one, ast.Assign) and _names(one) == {node.id}]
        node = made[0] if len(made) == 1 else node
    return [one for one in node.keys if one is not None] if isinstance(node, ast.Dict) else []


def _names(node: ast.Assign) -> set[str]:
    return {one.id for one in node.targets if isinstance(one, ast.Name)}


_READ = frozenset({"os.environ.get", "os.getenv", "environ.get", "getenv"})


def _read_by_another_name(wish: _Wish, program: Sequence[Script], sources: str) -> tuple[Place, str, str] | None:
    """The program reads another variable for its precision, which the launcher does not set, with float32 as its default."""
    if re.search(rf"\b{re.escape(wish.name)}\b", sources):
        return None
    for script in program:
        for node in ast.walk(script.tree):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in _READ or len(node.args) != 2:
                continue
            name, default = node.args
            if not isinstance(name, ast.Constant) or not isinstance(default, ast.Constant):
                continue
            full = str(default.value).lower() in _FULL
            if full and isinstance(name.value, str) and _NAME.fullmatch(name.value) and not _OTHERS.search(name.value):
                return (
                    place_of(script, node),
                    f"the program reads `{name.value}`, which nothing sets, with `{default.value!s}` as its default",
                    f"Call the variable `{name.value}` where it is set, or read `{wish.name}`.",
                )
    return None


def _of_another_section(wish: _Wish, job: Job, program: Sequence[Script]) -> tuple[Place, str, str] | None:
    """The program asks another section for the key, with no for an answer where it is missing, and never reads this one."""
    section = wish.section.rpartition(".")[2]
    if any(re.search(rf"[\"'.]{re.escape(section)}\b", one.source) for one in program):
        return None
    if job.trainer in (Trainer.TRANSFORMERS, Trainer.TRL) and job.get(wish.name) is True:
        return None
    for script in program:
        for node in ast.walk(script.tree):
            if _asks(node, wish.name):
                assert isinstance(node, ast.Call)
                return (
                    place_of(script, node),
                    f"`{ast.unparse(node)[:70]}` looks for it elsewhere, where it is not",
                    f"Move the key to where it is read, or read `{section}`.",
                )
    return None


def _asks(node: ast.AST, name: str) -> bool:
    """`cfg["trainer"].get("bf16", False)`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "get":
        return False
    values: Mapping[int, object] = {at: one.value for at, one in enumerate(node.args) if isinstance(one, ast.Constant)}
    return values.get(0) == name and (len(node.args) == 1 or str(values.get(1, "?")).lower() in _FULL)
