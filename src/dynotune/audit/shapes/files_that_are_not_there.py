"""A command gives a configuration that is not in the project, beside others of the same folder that are."""

import difflib
import posixpath
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.read.launchers.command import named_configs

_LIKE = 0.6
"""Of names, by `difflib`: another file of the folder that may be meant."""


def files_that_are_not_there(launch: Launch, project: Project) -> Iterator[Said]:
    there = {config.file for config in project.configs}
    names = {posixpath.basename(file) for file in (*there, *project.texts)}
    for name in dict.fromkeys(named_configs(launch.words)):
        last, folder = posixpath.basename(name), posixpath.normpath(posixpath.dirname(name))
        if re.search(r"[${}*?]", name) or name.startswith(("/", "~", "..")) or _is_made(last, launch, project):
            continue
        if last in names:
            yield from _elsewhere(name, launch, project)
            continue
        beside = sorted(
            posixpath.basename(file) for file in there if posixpath.normpath(posixpath.dirname(file)) == folder
        )
        beside = [one for one in beside if _kind(one) == _kind(last)]
        close = difflib.get_close_matches(last, beside, 1, _LIKE)
        if not close:
            continue
        yield _finding(name, posixpath.join(posixpath.dirname(name), close[0]), launch, beside[:8])


def _kind(name: str) -> str:
    """By the suffix: YAML has two."""
    return name.rpartition(".")[2].replace("yml", "yaml")


def _elsewhere(name: str, launch: Launch, project: Project) -> Iterator[Said]:
    """A file of this name stands in one other folder, of nearly the same name."""
    path, here = posixpath.normpath(name), posixpath.dirname(launch.file)
    files = {*(config.file for config in project.configs), *project.texts}
    same = [file for file in files if posixpath.basename(file) == posixpath.basename(path)]
    if {path, posixpath.normpath(posixpath.join(here, path))} & files or len(same) != 1 or "/" not in path:
        return
    if re.search(r"\bcd\b|\bpushd\b|--chdir|\bWORKDIR\b|working-directory", project.texts.get(launch.file, "")):
        return
    if same[0].endswith(f"/{path}") or path.endswith(f"/{same[0]}") or posixpath.dirname(same[0]) == here:
        return  # it is started from another folder, perhaps one above what is audited
    if difflib.SequenceMatcher(None, posixpath.dirname(path), posixpath.dirname(same[0])).ratio() >= _LIKE:
        yield _finding(name, same[0], launch, same)


def _finding(name: str, meant: str, launch: Launch, there: Sequence[str]) -> Finding:
    return Finding(
        f"`{name}` is not in the project: the command stops{'' if name.endswith('.py') else ', or starts without it'}. Did"
        f" you mean `{meant}`?",
        place=launch.place,
        evidence=Evidence(Level.TEXT, {"asked for": name, "there": list(there)}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(Risk.BEHAVIOURAL, f"Write `{meant}`, or add the file."),
    )


def program_that_is_not_there(launch: Launch, project: Project) -> Iterator[Said]:
    """A command starts a Python file that the project has under nearly the same name alone."""
    name = launch.program
    if not name.endswith(".py") or launch.script or re.search(r"[${}*?]", name) or name.startswith(("/", "~", "..")):
        return
    text = project.texts.get(launch.file, "") + project.documents.get(launch.file, "")
    last = posixpath.basename(name)
    if _ELSEWHERE.search(text) or re.search(rf">\s*\S*{re.escape(last)}\b", text):
        return
    files = [script.file for script in project.scripts]
    if any(posixpath.basename(file).replace(".ipynb", ".py") == last for file in files):
        return  # it lies in another folder, or is written from a notebook
    files = [file for file in files if file.endswith(".py")]
    beside = [file for file in files if posixpath.dirname(file) == posixpath.dirname(posixpath.normpath(name))]
    close = difflib.get_close_matches(last, [posixpath.basename(file) for file in beside], 2, 0.75)
    if len(close) == 1:
        yield _finding(name, posixpath.join(posixpath.dirname(name), close[0]), launch, beside[:8])


_ELSEWHERE = re.compile(
    r"\bcd\b|\bpushd\b|git clone|--chdir|\bcwd\s*=|\bWORKDIR\b|working-directory|\bwget\b|\bcurl\b|nbconvert|\bcp\b|\bmv\b"
    r"|\bln\b|\btee\b|%%writefile"
)
"""Commands that run in another folder, or that bring or make files first."""


def deepspeed_that_is_not_there(project: Project) -> Iterator[Said]:
    """A job's `deepspeed:` names a file that the project has under nearly the same name."""
    files = {config.file for config in project.configs if config.file.endswith(".json")}
    said: set[Place] = set()
    for job in project.jobs:
        setting = job.setting("deepspeed")
        name = setting.value if setting is not None and not setting.others else None
        if setting is None or not isinstance(name, str) or not name.endswith(".json") or setting.place in said:
            continue
        path = posixpath.normpath(name)
        if re.search(r"[${}*?]", name) or name.startswith(("/", "~", "..")):
            continue
        if any(file == path or file.endswith(f"/{path}") or path.endswith(f"/{file}") for file in files):
            continue
        if any(posixpath.basename(path) in text for file, text in project.texts.items() if file != setting.place.file):
            continue  # it may be made, or copied
        close = difflib.get_close_matches(path, sorted(files), 1, 0.7)
        if close and setting.place.file:
            said.add(setting.place)
            yield Finding(
                f"`{job.called('deepspeed')}: {name}` is not in the project: the run stops when it is read. Did you mean"
                f" `{close[0]}`?",
                place=setting.place,
                evidence=Evidence(Level.RESOLVED, {"asked for": name, "there": sorted(files)[:8]}),
                stake=Stake(AtStake.STOPS),
                remedy=Remedy(Risk.BEHAVIOURAL, f"Write `{close[0]}`, or add the file."),
            )


def _is_made(name: str, launch: Launch, project: Project) -> bool:
    """A line of the project writes it, or gets it from elsewhere."""
    makes = re.compile(
        rf"(?:>|\bcp\b|\bmv\b|\bwget\b|\bcurl\b|\btee\b|\bdump\(|\bopen\(|\bwrite)[^\n]*{re.escape(name)}"
    )
    stem = re.escape(name.rpartition(".")[0])
    return any(
        makes.search(text) or re.search(rf"f[\"'][^\"'\n]*{stem}", text) for text in project.texts.values()
    ) or bool(re.search(r"\bgit clone\b|\bcd\s+[\"']?\$", project.texts.get(launch.file, "")))
