"""`dynotune bench`: measuring, and what is done with results: compare, gate, list, withdraw."""

import json
import sys
from typing import Annotated, Any

from cyclopts import App, Parameter

from dynotune.bench.judging.sentence import closing
from dynotune.bench.keeping.between import (
    Judged,
    Outcome,
    changes,
    limit,
    require_same_definitions,
    said_beside,
)
from dynotune.bench.keeping.between import gate as judge
from dynotune.bench.showing.table import beside, legend
from dynotune.cli_measure import measure
from dynotune.errors import ConfigError
from dynotune.printable import printable
from dynotune.results.history import History
from dynotune.results.result import Result
from dynotune.show.grids import Grid, Line, Tone

FINE, REGRESSION = 0, 3
"""Exit codes of `bench gate`: no arm is slower than allowed; one is, or cannot be compared. 2 is, as everywhere, what the
user can mend (a file that is no result, other definitions), and 1 a defect."""

app = App(
    name="bench",
    help="Measure what a change does to speed and memory, in pairs of blocks on the same documents; speed is shown where"
    " the updates stay the same. Compare kept results, hold them against a baseline, list and withdraw them.",
    help_epilogue="Examples:\n\n"
    "dynotune bench --config a.yaml --vs b.yaml\n\n"
    "dynotune bench --config a.yaml --set use_liger_kernel=true --expect 'speed>=1.05'\n\n"
    "dynotune bench --config a.yaml --ladder --budget 300\n\n"
    "dynotune bench --config a.yaml --sweep micro_batch_tokens=2048,4096,8192\n\n"
    "dynotune bench -- python train_a.py :: python train_b.py\n\n"
    "dynotune bench --rev main --rev HEAD -- python train.py\n\n"
    "dynotune bench gate baseline.json new.json --max_regression 3%",
    help_format="plaintext",
    version_flags=(),
)

_Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print one JSON object on stdout.")]


app.default(measure)


@app.command(help_epilogue="Example: dynotune bench compare 2026-11-21-180000-ab new.json")
def compare(*results: str, as_json: _Json = False) -> None:
    """Show several results beside one another, with what changed since the first.

    Results of different definitions are refused; other machines, versions and operating points are said.

    Parameters
    ----------
    results
        Files, folders of benches, or names of the history of which a beginning or an end is enough.
    """
    if len(results) < 2:
        raise ConfigError(
            "name two results or more: `dynotune bench compare OLD NEW`. `dynotune bench list` names them."
        )
    history = History()
    found = [history.find(one)[0] for one in results]
    require_same_definitions(found)
    if as_json:
        _print_json(
            {
                "results": [one.name for one in found],
                "notes": said_beside(found),
                "changes": [
                    {
                        "from": found[0].name,
                        "to": one.name,
                        "arm": change.arm,
                        "ratio": None if change.ratio is None else change.ratio.model_dump(),
                        "why": change.why,
                        "same_documents": change.paired,
                    }
                    for one in found[1:]
                    for change in changes(found[0], one)
                ],
            }
        )
        return
    _print(beside(found), [*legend(found), *(Line(f"note: {text}", Tone.DOUBT) for text in said_beside(found))])


@app.command(
    help_epilogue="Example: dynotune bench gate baseline.json new.json --max_regression 3%\n\n"
    "Exit codes: 0 fine; 3 an arm lost more than allowed, or cannot be compared; 2 a result cannot be used."
)
def gate(
    baseline: str,
    new: str,
    /,
    *,
    max_regression: Annotated[str, Parameter(name=("--max_regression", "--max-regression"))] = "3%",
    strict: Annotated[bool, Parameter(negative=())] = False,
    as_json: _Json = False,
) -> int:
    """Fail where a bench is slower than its baseline: for continuous integration.

    Parameters
    ----------
    baseline
        A file, a folder of a bench, or a name of the history.
    new
        The same bench, run again.
    max_regression
        The loss of speed that is let pass: `3%`.
    strict
        Fail too where a larger loss is not excluded.
    """
    most = limit(max_regression)
    history = History()
    old, now = (history.find(one)[0] for one in (baseline, new))
    judged = judge(old, now, most)
    bad = {Outcome.REGRESSION, Outcome.NOT_COMPARABLE} | ({Outcome.UNRESOLVED} if strict else set())
    passed = not any(one.outcome in bad for one in judged)
    notes = said_beside([old, now])
    if as_json:
        arms = [{"arm": one.arm, "outcome": str(one.outcome), "text": one.text} for one in judged]
        _print_json({"passed": passed, "max_regression": most, "arms": arms, "notes": notes})
    else:
        lines = [_gate_line(one, strict) for one in judged] + [Line(f"note: {text}", Tone.DOUBT) for text in notes]
        end = "passed" if passed else "failed"
        _print(None, [*lines, Line(f"{end}: a loss of at most {100 * most:g} % is allowed")])
    return FINE if passed else REGRESSION


@app.command(help_epilogue="Example: dynotune bench withdraw 2026-11-21-180000-ab --why 'its tokens counted padding'")
def withdraw(
    result: str,
    /,
    *,
    why: str,
    corrected_by: Annotated[str, Parameter(name=("--corrected_by", "--corrected-by"))] = "",
) -> None:
    """Mark a result as wrong. It stays, and says so wherever it is shown.

    Parameters
    ----------
    result
        A file, a folder of a bench, or a name of the history.
    why
        What was wrong.
    corrected_by
        The result that holds instead.
    """
    marked, path = History().withdraw(result, why, corrected_by)
    sys.stdout.write(f"withdrawn: {printable(marked.name)} ({printable(str(path))})\n")


@app.command(name="list", help_epilogue="Example: dynotune bench list --last 10")
def list_results(*, last: int = 30, as_json: _Json = False) -> None:
    """List the results that were kept, the newest last.

    Parameters
    ----------
    last
        How many.
    """
    history = History()
    paths = history.paths()
    kept = [one for path in paths[: max(0, last)] if (one := history.read(path)) is not None][::-1]
    if as_json:
        _print_json({"results": [_told(one) for one in kept], "all": len(paths)})
        return
    if not kept:
        _print(None, [Line(f"no result was kept in {printable(str(history.folder))}")])
        return
    lines = []
    for one in kept:
        lines.append(Line(f"{printable(one.name, 200)}  {printable(str(one.machine.get('device', '')), 60)}"))
        lines.append(Line(f"  {closing(one)}", Tone.QUIET))
        if one.withdrawn is not None:
            instead = (
                f"; {printable(one.withdrawn.corrected_by, 60)} holds instead" if one.withdrawn.corrected_by else ""
            )
            lines.append(Line(f"  WITHDRAWN: {printable(one.withdrawn.why, 200)}{instead}", Tone.BAD))
    if len(paths) > len(kept):
        lines.append(Line(f"{len(paths) - len(kept)} more", Tone.QUIET))
    _print(None, lines)


def _told(one: Result) -> dict[str, Any]:
    return {
        "name": one.name,
        "date": one.date,
        "kind": one.kind,
        "device": one.machine.get("device", ""),
        "work": one.work,
        "definitions": one.definitions,
        "withdrawn": None if one.withdrawn is None else one.withdrawn.model_dump(),
        "sentence": closing(one),
    }


def _gate_line(one: Judged, strict: bool) -> Line:
    bad = one.outcome in (Outcome.REGRESSION, Outcome.NOT_COMPARABLE) or (strict and one.outcome is Outcome.UNRESOLVED)
    tone = Tone.BAD if bad else Tone.GOOD if one.outcome is Outcome.FINE else Tone.DOUBT
    return Line(f"{one.arm}: {one.outcome}, {one.text}", tone)


def _print(table: Grid | None, lines: list[Line]) -> None:
    from rich.console import Console
    from rich.text import Text

    from dynotune.show.terminal import STYLES, grid

    console = Console()
    for text in () if table is None else grid(table, console.width):
        console.print(text, soft_wrap=True, highlight=False)
    for line in lines:
        console.print(Text(line.text, style=STYLES[line.tone]), soft_wrap=True, highlight=False)


def _print_json(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")
