"""A file of settings whose kind the project's programs do use, and that none of its files names."""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import code
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.read.configs.job import TRAINERS

_OPEN_WORD = re.compile(r"\$[@*#1-9]|\$\{[@*#1-9]|\$\{?\w+\}?\.(?:ya?ml|json|toml)|\*\.(?:ya?ml|json|toml)")
"""Of a launcher that takes words from who calls it, or files by a pattern."""

_ANY_FILE = re.compile(
    r"\bglob\(|listdir\(|iterdir\(|import_module|__import__|\bhydra\b|jsonargparse|configargparse|LightningCLI|dynaconf"
    r"|\bf[\"'][^\"'\n]{0,80}\}[^\"'\n]{0,20}\.(?:ya?ml|json|toml)|\.(?:ya?ml|json|toml)[\"']\s*\.format|with_suffix\("
    r"|[\"']\.(?:ya?ml|json|toml)[\"']|\bexec\(|runpy|subprocess|os\.system"
)
_DEEPSPEED = re.compile(r"deepspeed|\bzero[-_]?[0123]\b|ZeROStage", re.IGNORECASE)
_LISTS = re.compile(
    r"(?:^|/)(?:requirements[^/]*\.txt|environment[^/]*\.ya?ml|pyproject\.toml|setup\.(?:py|cfg)|Dockerfile\S*)$"
)


_AS_AN_OPTION = re.compile(
    r"(?i)\bzero(?:-?[123])?\b[^.\n]{0,80}\b(?:can|could|may|if|optional\w*)\b|\b(?:can|if|optional\w*)\b[^.\n]{0,80}\bzero-?[123]\b"
)


def named_by_nothing(project: Project) -> Iterator[Said]:
    yield from _of_deepspeed(project)
    yield from _of_a_call(project)
    yield from _beside_a_services(project)
    yield from _modules(project)


def _of_deepspeed(project: Project) -> Iterator[Said]:
    """No command, script or configuration asks for DeepSpeed by any name."""
    files = [config for config in project.configs if config.kind == "deepspeed"]
    if (
        not files
        or not project.launches
        or any(_OPEN_WORD.search(project.texts.get(one.file, "")) for one in project.launches)
    ):
        return
    own = {config.file for config in files}
    others = {file: text for file, text in project.texts.items() if file not in own and not _LISTS.search(file)}
    if any(_DEEPSPEED.search(_without_comments(text)) for text in others.values()):
        return
    if any(_AS_AN_OPTION.search(text) for text in project.documents.values()):
        return  # who reads on finds what the file is for
    for config in files:
        if not _named(config.file, project) and not _kept(config):
            start = next((one for one in project.launches if one.launcher), project.launches[0])
            yield _said(
                config.file,
                "no command and no script asks for DeepSpeed: its stages and offloading do nothing",
                start.place,
            )


def _of_a_call(project: Project) -> Iterator[Said]:
    """Its keys are the arguments that a call of the project's writes out itself."""
    if any(_OPEN_WORD.search(project.texts.get(one.file, "")) for one in project.launches):
        return
    if any(_ANY_FILE.search(code(script)) for script in project.scripts):
        return
    for config in project.configs:
        keys = {str(key) for key in config.values}
        if (
            config.kind != "unknown"
            or len(keys) < 3
            or _kept(config)
            or _named(config.file, project)
            or _written_by_peft(config)
        ):
            continue
        found = _call_with(keys, project.scripts)
        # Whatever its name is, a command has to give it, or the code.
        if found is not None and (project.launches or not _takes_a_file(project.scripts)):
            script, call = found
            name = ast.unparse(call.func)
            yield _said(
                config.file,
                f"`{name}` in `{script.file}` has its values from the code",
                Place(script.file, call.lineno),
            )


def _call_with(keys: set[str], scripts: Sequence[Script]) -> tuple[Script, ast.Call] | None:
    for script in scripts:
        for node in ast.walk(script.tree):
            if not isinstance(node, ast.Call) or any(one.arg is None for one in node.keywords):
                continue
            told = {
                one.arg
                for one in node.keywords
                if one.arg and isinstance(one.value, ast.Constant | ast.List | ast.Tuple)
            }
            if len(told & keys) >= 3 and len(told & keys) >= 0.6 * len(keys):
                return script, node
    return None


def _takes_a_file(scripts: Sequence[Script]) -> bool:
    return any(
        re.search(r"sys\.argv|add_argument|ArgumentParser|click|typer|\bfire\b|environ|getenv|input\(", one.source)
        for one in scripts
    )


_STARTS = re.compile(r"\b(?:trl|axolotl|llamafactory-cli|llamafactory|axolotl\.cli\.train|dynotune|tune)\b")


def _beside_a_services(project: Project) -> Iterator[Said]:
    """A service, job or workflow names another of the folder, of the same trainer."""
    known = {config.file: config for config in project.configs if config.kind in TRAINERS}
    services = [
        (file, text)
        for file, text in project.texts.items()
        if file not in known and file.endswith((".yml", ".yaml", ".json")) and _STARTS.search(text)
    ]
    if not services or any(_OPEN_WORD.search(text) for text in project.texts.values()):
        return
    for config in known.values():
        path = PurePosixPath(config.file)
        if _named(config.file, project) or _kept(config):
            continue
        for file, text in services:
            used = [
                one
                for one in known.values()
                if PurePosixPath(one.file).parent == path.parent
                and TRAINERS[one.kind][0] is TRAINERS[config.kind][0]
                and re.search(rf"(?<![\w.-]){re.escape(PurePosixPath(one.file).name)}\b", text)
            ]
            if used:
                yield _said(
                    config.file, f"`{file}` starts `{used[0].file}` alone", Place(file, _line(text, used[0].file))
                )
                break


def _line(text: str, file: str) -> int:
    return text.count("\n", 0, max(text.find(PurePosixPath(file).name), 0)) + 1


def _modules(project: Project) -> Iterator[Said]:
    """A module of constants beside one of the same names that a program imports."""
    held = {script.file: names for script in project.scripts if (names := _constants(script)) is not None}
    if len(held) < 2 or any(_ANY_FILE.search(code(script)) for script in project.scripts):
        return
    imported = {
        file for file in held if project.imports.users(next(one for one in project.scripts if one.file == file))
    }
    for file, names in held.items():
        path = PurePosixPath(file)
        if file in imported or re.search(rf"\b{re.escape(path.stem)}\b", _others(file, project)):
            continue
        other = next(
            (
                one
                for one in sorted(imported)
                if PurePosixPath(one).parent == path.parent and len(names & held[one]) >= max(3, 0.7 * len(names))
            ),
            None,
        )
        if other is not None:
            yield _said(file, f"the project imports `{other}` for the same names", Place(other, 1))


def _constants(script: Script) -> set[str] | None:
    """Names of a module that does nothing but assign."""
    names: set[str] = set()
    for node in script.tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
                continue
            case _:
                return None
    return names if len(names) > 2 else None


def _others(file: str, project: Project) -> str:
    return "\n".join(text for name, text in {**project.documents, **project.texts}.items() if name != file)


def _named(file: str, project: Project) -> bool:
    """By its whole name; or by its stem, as a path, a text or a word of a command may have it."""
    path = PurePosixPath(file)
    word = re.compile(rf"{re.escape(path.name)}|[\"'/]{re.escape(path.stem)}(?![\w-])")
    words = {word.rpartition("=")[2] for launch in (*project.launches, *project.told) for word in launch.words}
    return path.stem in words or word.search(_others(file, project)) is not None


def _kept(config: ConfigFile) -> bool:
    head = " ".join(text for line, text in sorted(config.comments.items()) if line <= 10)
    return bool(
        re.search(
            r"hand\b|manual|unused|kept|reference|archive|template|example|copy|superseded|deprecated", head, re.I
        )
    )


def _written_by_peft(config: ConfigFile) -> bool:
    """Files that libraries write beside weights."""
    return PurePosixPath(config.file).name in (
        "adapter_config.json",
        "config.json",
        "generation_config.json",
        "trainer_state.json",
    )


def _without_comments(text: str) -> str:
    return "\n".join(re.split(r"(?:^|\s)#", line)[0] for line in text.split("\n"))


def _said(file: str, why: str, other: Place) -> Finding:
    return Finding(
        f"No command, script or configuration of this project names `{file}`: {why}.",
        place=Place(file, 1),
        also=(other,),
        evidence=Evidence(Level.TEXT, {"unused": file, "why": why}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(
            Risk.OPERATIONAL, "Name it where it was meant to be used, or say at its head what it is kept for."
        ),
    )
