"""`dynotune audit` and `dynotune rule`."""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from dynotune.command_line import WORDS
from dynotune.errors import ConfigError

_WHAT = Group("What is audited", sort_key=0)
_WHICH = Group("Which findings count", sort_key=1)
_SHOWN = Group("What is shown and written", sort_key=2)
_CHANGED = Group("What is changed", sort_key=3)


def _flag(name: str, text: str, group: Group, **more: Any) -> Parameter:
    return Parameter(name=f"--{name}", help=text, group=group, negative=(), **more)


_Paths = list[Path] | None
_Words = list[str] | None


def audit(
    *command: Annotated[
        str,
        Parameter(help="Behind `--`: a training command, which is started and profiled for a few steps.", group=_WHAT),
    ],
    project: Annotated[
        Path | None, _flag("project", "A folder, read whole [default: this one, where nothing is named].", _WHAT)
    ] = None,
    config: Annotated[_Paths, _flag("config", "Configurations of any trainer.", _WHAT, consume_multiple=True)] = None,
    script: Annotated[
        _Paths, _flag("script", "Python scripts and shell launchers; read, never run.", _WHAT, consume_multiple=True)
    ] = None,
    data: Annotated[_Paths, _flag("data", "Files or folders of training data.", _WHAT, consume_multiple=True)] = None,
    tokenizer: Annotated[
        str | None, _flag("tokenizer", "A folder or hub id, for real lengths of the data.", _WHAT)
    ] = None,
    run: Annotated[_Paths, _flag("run", "Folders that runs have written.", _WHAT, consume_multiple=True)] = None,
    env: Annotated[bool, _flag("env", "This machine and its packages, each tried for working.", _WHAT)] = False,
    source: Annotated[
        _Words,
        _flag(
            "source",
            "`trl=PATH`: keys are checked against this checkout, not the installed version.",
            _WHAT,
            consume_multiple=True,
        ),
    ] = None,
    select: Annotated[
        _Words, _flag("select", "Only these rules: codes, families or names.", _WHICH, consume_multiple=True)
    ] = None,
    ignore: Annotated[_Words, _flag("ignore", "Without these rules.", _WHICH, consume_multiple=True)] = None,
    level: Annotated[
        Literal["note", "warning", "error"],
        _flag("level", "Exit with 1 from this severity on; all are shown.", _WHICH),
    ] = "note",
    baseline: Annotated[Path | None, _flag("baseline", "A file of findings that are known.", _WHICH)] = None,
    write_baseline: Annotated[
        Path | None, _flag("write_baseline", "Write that file, with all that is found now.", _WHICH)
    ] = None,
    everything: Annotated[
        bool, _flag("all", "Everything: all findings with their facts, checks that passed, reasons.", _SHOWN)
    ] = False,
    plan: Annotated[bool, _flag("plan", "In which order to apply what, with what measures each step.", _SHOWN)] = False,
    output: Annotated[
        _Words,
        _flag(
            "output",
            "`FORMAT=FILE`, more than once: json, sarif, markdown, html.",
            _SHOWN,
            consume_multiple=True,
        ),
    ] = None,
    as_json: Annotated[bool, _flag("json", "Print one JSON object on stdout.", _SHOWN)] = False,
    fix: Annotated[
        bool,
        _flag("fix", "Apply safe changes (the same mathematics), comments and layout kept; audit again.", _CHANGED),
    ] = False,
    unsafe: Annotated[
        bool, _flag("unsafe", "As `--fix`, and ask for each change that rounds otherwise.", _CHANGED)
    ] = False,
    write_config: Annotated[
        Path | None,
        _flag(
            "write_config",
            "Write the one job as a configuration of Dynotune; says what cannot be carried over.",
            _CHANGED,
        ),
    ] = None,
    diff: Annotated[bool, _flag("diff", "Show what `--fix` would change, and change nothing.", _CHANGED)] = False,
) -> int:
    """Find what is wrong or slow in configurations, scripts, data, runs and the environment, with evidence.

    Nothing that is audited is run, but a command behind `--`. Exits with 0 where nothing is found, 1 where something is, 2
    where nothing could be checked, or not what was named.
    """
    if command and "--" not in WORDS.get():
        raise ConfigError(f"`{command[0]}`: name what to audit by flags: `dynotune audit --config sft.yaml`.")
    from rich.console import Console

    from dynotune.audit.command import LEVELS, Options, named_in, outputs, run_audit, sources
    from dynotune.audit.run import Request

    given = project or config or script or data or run or command
    request = Request(
        project=project if given or env else Path(),
        files=(*(config or ()), *(script or ()), *named_in(command)),
        environment=env or not given,
        data=data or (),
        tokenizer=tokenizer,
        runs=run or (),
        sources=sources(source or ()),
        select=select or (),
        ignore=ignore or (),
    )
    options = Options(
        request,
        level=LEVELS[level],
        baseline=baseline,
        write_baseline=write_baseline,
        outputs=outputs(output or ()),
        everything=everything,
        plan=plan,
        as_json=as_json,
        fix=fix,
        unsafe=unsafe,
        diff=diff,
        write_config=write_config,
        command=command,
    )
    return run_audit(options, Console(stderr=as_json))


def rule(
    code: str | None = None, /, *, as_json: Annotated[bool, Parameter(name="--json", negative=())] = False
) -> None:
    """Explain a rule of `dynotune audit`: what it finds and how, why it matters, examples. Without a code: list all.

    Parameters
    ----------
    code
        A code (`OPT001`), a name (`unfused-optimizer`) or a family (`OPT`).
    as_json
        Print JSON on stdout.
    """
    import json

    from dynotune.audit.explain import page
    from dynotune.audit.judging.choice import codes_of, on_words
    from dynotune.audit.registry import rules

    known = rules()
    codes = sorted(codes_of(known, [code], "dynotune rule")) if code else list(known)
    for sentence in on_words([code], "dynotune rule") if code else ():
        if not codes:
            raise ConfigError(sentence)
        sys.stderr.write(f"{sentence}\n")
    if as_json:
        rows = [
            {"code": one, "name": known[one].name, "group": known[one].group, "summary": known[one].summary,
             **({"page": page(known[one])} if code else {})}
            for one in codes
        ]  # fmt: skip
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    elif code and len(codes) == 1:
        sys.stdout.write(page(known[codes[0]]))
    else:
        for one in codes:
            sys.stdout.write(f"{one}  {known[one].name}: {known[one].summary}\n")
