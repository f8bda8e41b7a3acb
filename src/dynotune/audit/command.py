"""`dynotune audit`: what was asked for, carried out and shown."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from dynotune.audit.finding import Severity
from dynotune.audit.judging.baseline import baseline_text, read_baseline
from dynotune.audit.run import Request, Result, audit
from dynotune.audit.schema import PACKAGES, package_in
from dynotune.audit.show.as_json import json_text
from dynotune.audit.show.markdown import markdown
from dynotune.audit.show.sarif import sarif_text
from dynotune.audit.show.terminal import show
from dynotune.audit.show.words import text
from dynotune.audit.show.written import require_ours
from dynotune.errors import ConfigError, DynotuneError
from dynotune.printable import printable
from dynotune.say import sayer


def _html(result: Result) -> str:
    from dynotune.audit.show.html import html

    return html(result)


def _sarif(result: Result) -> str:
    from dynotune.audit.fix.command import for_sarif

    return sarif_text(result, for_sarif(result))


def _write(path: Path, text: str) -> None:
    from dynotune.show.page import write_page

    write_page(path, text)


FORMATS: Mapping[str, Callable[[Result], str]] = {
    "json": json_text,
    "sarif": _sarif,
    "markdown": markdown,
    "html": _html,
}
LEVELS = {"note": Severity.NOTE, "warning": Severity.WARNING, "error": Severity.ERROR}


@dataclass(frozen=True, slots=True)
class Options:
    """The flags, as given."""

    request: Request
    level: Severity = Severity.NOTE
    baseline: Path | None = None
    write_baseline: Path | None = None
    outputs: Sequence[tuple[str, Path]] = ()
    everything: bool = False
    plan: bool = False
    as_json: bool = False
    fix: bool = False
    unsafe: bool = False
    diff: bool = False
    """Show what `fix` would change, and change nothing."""

    write_config: Path | None = None
    command: Sequence[str] = ()
    """To be run and profiled."""


def run_audit(options: Options, console: Console) -> int:
    """Returns the exit code."""
    require_ours(_targets(options), (*options.request.files, *options.request.data))
    known = read_baseline(options.baseline) if options.baseline is not None else None
    request = replace(options.request, baseline=known)
    say = sayer(console)
    if options.command:
        request = _profiled(request, options.command)
    result = audit(request)
    if options.fix or options.unsafe or options.diff:
        from dynotune.audit.fix.command import apply, on_terminal, propose, require_terminal

        if options.unsafe:
            require_terminal()
        proposal = propose(result, ask=on_terminal if options.unsafe else None, say=say)
        result = result if options.diff else apply(request, result, proposal, say)
        say("")
    if options.as_json:
        sys.stdout.write(json_text(result))
    else:
        show(result, console, everything=options.everything, plan=options.plan)
    failed = []
    for name, path in options.outputs:
        try:
            _write(path, FORMATS[name](result))
        except (DynotuneError, ValueError) as error:  # the other outputs are no worse for it
            failed.append(f"flag --output: {name} was not written: {printable(str(error))}")
        else:
            say(f"written: {printable(str(path))}")
    if options.write_config is not None:
        write_configuration(result, options.write_config, say)
    if options.write_baseline is not None:
        found, project, path = [*result.single, *result.known], result.project, options.write_baseline
        _write(path, baseline_text(found, project.texts, project.root, path.parent))
        say(f"written: {printable(str(options.write_baseline))}, which knows all of these findings")
    if failed:
        raise ConfigError(" ".join(failed))
    if options.write_baseline is not None:
        return 0
    return result.exit_code(options.level)


def _targets(options: Options) -> list[tuple[str, str, Path]]:
    """Flag, kind and file of all that is written over."""
    targets = [("flag --output", name, path) for name, path in options.outputs]
    if options.write_baseline is not None:
        targets.append(("flag --write_baseline", "baseline", options.write_baseline))
    return targets


def _profiled(request: Request, command: Sequence[str]) -> Request:
    """With what was seen of the command. That nothing was seen is said, and the rest is audited all the same."""
    from dynotune.profile.foreign.command import Options as Profiled
    from dynotune.profile.foreign.command import profile

    def say(line: str) -> None:
        sys.stderr.write(f"{printable(line)}\n")

    try:
        return replace(request, profile=profile(Profiled(command), say))
    except DynotuneError as error:
        return replace(request, not_seen=f"the command was not profiled: {error}")


READ = frozenset({".py", ".sh", ".yaml", ".yml", ".json", ".toml"})


def named_in(command: Sequence[str]) -> list[Path]:
    """Files that a command names and that are read as well: its script, its configurations."""
    paths = [Path(word.partition("=")[2] if word.startswith("--") else word) for word in command]
    return [path for path in paths if path.suffix.lower() in READ and path.is_file()]


def write_configuration(result: Result, path: Path, say: Callable[[str], None]) -> None:
    """`--write_config`: the one job as a configuration of Dynotune. Raises `ConfigError`."""
    from dynotune.audit.plan.carry_over import carry_over

    jobs = result.project.jobs
    if len(jobs) != 1:
        found = ", ".join(sorted({text(job.home) for job in jobs})) or "none"
        raise ConfigError(
            f"`--write_config` translates one job, and there are {len(jobs)} ({found}). Name one file: `--config` or"
            " `--script`."
        )
    if path.exists():
        raise ConfigError(f"{printable(str(path))} is there already. Name another file with `--write_config`.")
    made = carry_over(jobs[0])
    _write(path, made.text)
    say(f"written: {printable(str(path))}: `{made.command} --config {printable(str(path))}`")
    for sentence in made.left:
        say(f"  not carried over: {sentence}")


def outputs(words: Sequence[str]) -> list[tuple[str, Path]]:
    """`sarif=audit.sarif` and so on. Raises `ConfigError`."""
    found = []
    for word in words:
        name, mark, path = word.partition("=")
        if name not in FORMATS or not mark or not path:
            raise ConfigError(
                f"flag --output: {printable(word)} is no format and file. Write `sarif=audit.sarif`; formats are"
                f" {', '.join(FORMATS)}."
            )
        found.append((name, Path(path)))
    return found


def sources(words: Sequence[str]) -> dict[str, Path]:
    """`trl=PATH` and so on. Raises `ConfigError`."""
    found = {}
    for word in words:
        name, mark, path = word.partition("=")
        if not mark or not name or not Path(path).is_dir():
            raise ConfigError(
                f"flag --source: {printable(word)} names no package and folder. Write `trl=path/to/trl`, a checkout."
            )
        if name not in PACKAGES:
            raise ConfigError(
                f"flag --source: keys of {printable(name)} are not known here. Packages are {', '.join(PACKAGES)}."
            )
        if package_in(Path(path), name) is None:
            raise ConfigError(
                f"flag --source: {printable(path)} does not hold the package {name}: no `__init__.py` is in `{name}` or"
                f" `src/{name}` of it. Name the checkout."
            )
        found[name] = Path(path)
    return found
