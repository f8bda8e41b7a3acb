"""Flags of a training script's own parser that no line of the project reads, whether or not a command gives them."""

import ast
import re
from collections.abc import Iterator, Sequence, Set

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import code, leads_out, together
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.read.launchers.accepts import accepts
from dynotune.audit.schema import Schemas

TRAINS = re.compile(r"Trainer\(|\.backward\(")
WHOLE = re.compile(
    r"\bvars\(|\basdict\(|__dict__|\bfields\(|_get_kwargs|sys\.argv|namespace=|getattr\(\s*(?:self\.)?(?:args|opts?|cfg|config|hparams)\b,"
    r"\s*(?!['\"])|set_defaults\(|parse_known_args|model_dump|replace\(\s*args"
)
_SHOWN = re.compile(
    r"(?:print|dumps?|info|update|init_trackers)\([^()\n]{0,80}(?:vars|asdict)\([\w.]*\)|config\s*=\s*(?:vars|asdict)\([\w.]*\)"
)
LAUNCHERS = frozenset({"local_rank", "deepspeed", "deepspeed_config", "config", "help", "local-rank", "seed"})
"""What launchers put there, and what MSR003 says more of."""

ADMITTED = re.compile(r"deprecat|unused|ignored|compat|not used|no effect|todo|placeholder", re.IGNORECASE)
_SHOWS = re.compile(r"(?:^|\.)(?:print|pprint|info|debug|log|init|str|repr|format|Namespace)$")


def flags_that_nothing_reads(project: Project) -> Iterator[Said]:
    scripts = {script.file: script for script in project.scripts}
    sources = [code(one) for one in project.scripts]
    if not any("ArgumentParser(" in one for one in sources) or any(
        WHOLE.search(_SHOWN.sub("", one)) for one in sources
    ):
        return
    text = "\n".join(sources)
    for script in project.scripts:
        near = together(script, project)
        if "ArgumentParser(" not in script.source or leads_out(near, project):
            continue
        if not any(TRAINS.search(code(one)) for one in near) or goes_out(near, project):
            continue
        taken = accepts(script, scripts, Schemas.of())
        if taken is None or taken.parser != "argparse" or taken.drops:
            continue
        given = {name for launch in project.launches if launch.script == script.file for name in launch.flags}
        unread = [(name, at) for name in sorted(taken.stored - LAUNCHERS - given) if (at := _asked(name, script, text))]
        if 0 < len(unread) <= max(3, len(taken.stored) // 3):
            yield finding_of(sorted(unread, key=lambda one: one[1].line))


def _asked(name: str, script: Script, text: str) -> Place | None:
    """Where the flag is added, if nothing reads it."""
    word = re.escape(name)
    if re.search(rf"\.{word}\b|(?<!--)['\"]{word}['\"]|\b{word}\s*=(?!=)[^=\n]*\bargs?\b", text):
        return None
    found = script.constants.get(f"--{name}") or script.constants.get(f"--{name.replace('_', '-')}")
    if found is None or found.place.file != script.file or ADMITTED.search(_line(script, found.place)):
        return None
    return found.place


def _line(script: Script, place: Place) -> str:
    return "\n".join(script.source.split("\n")[max(0, place.line - 1) : place.end_line + 1])


_PARSED = re.compile(
    r"(\w+)(?:\s*:\s*[\w.]+)?,?\)?\s*=\s*[\w.]*\b(?:pars|\w+Parser)\w*(?:\([^\n]*\))?\.parse_args\w*\("
)
_A_LIBRARYS = re.compile(r"\b(\w+)\s*=\s*[\w.]*(?:Arguments|Config)\(")
"""`args = TrainingArguments(...)`, which is no option of the command."""


_OPTIMIZER = re.compile(r"\b(opts?)\s*=\s*[\w.]*(?:[Oo]ptim|Adam|SGD|Lion|Adafactor|configure_opt)\w*")
"""`opt = torch.optim.AdamW(...)`."""


def goes_out(near: Sequence[Script], project: Project) -> bool:
    """The parsed options as a whole are handed to something that is not of the project."""
    own = {
        node.name
        for one in project.scripts
        for node in ast.walk(one.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    optimizers = {name for one in near for name in _OPTIMIZER.findall(one.source)}
    optimizers -= {name for one in near for name in _PARSED.findall(one.source)}
    for script in near:
        names = set(_PARSED.findall(script.source)) | {"args", "opt", "opts"}
        names -= optimizers
        names -= set(_A_LIBRARYS.findall(script.source)) - set(_PARSED.findall(script.source))
        for node in ast.walk(script.tree):
            if not isinstance(node, ast.Call):
                continue
            bare = [*node.args, *(one.value for one in node.keywords)]
            if not any(isinstance(one, ast.Name) and one.id in names for one in bare):
                continue
            func = ast.unparse(node.func)
            if func.rpartition(".")[2] not in own and not _SHOWS.search(func):
                return True
    return False


def finding_of(unread: Sequence[tuple[str, Place]], shown: Set[str] = frozenset()) -> Finding:
    """Of these flags; some of them may be printed or logged, and no more."""
    names = ", ".join(f"`--{name}`" for name, _ in unread[:4])
    read = "read by no line of the project"
    if shown:
        read = "only shown" if all(name in shown for name, _ in unread) else "at most shown"
    return Finding(
        f"{names} {'are' if len(unread) > 1 else 'is'} parsed and {read}: whoever sets"
        f" {'them' if len(unread) > 1 else 'it'} changes nothing{' else' if shown else ''}.",
        place=unread[0][1],
        also=tuple(place for _, place in unread[1:]),
        evidence=Evidence(Level.TEXT, {"flags": [name for name, _ in unread]}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(Risk.BEHAVIOURAL, "Use them where they were meant to work, or take them out of the parser."),
    )
