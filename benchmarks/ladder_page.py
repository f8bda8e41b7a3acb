"""The README's ladder: from the plain path by one speed-up after another to all of them, as a picture and a table.

    python -m benchmarks.case_studies --only ladder,ladder_dpo --shared SHARED --out OUT    # and keep what it leaves
    python -m benchmarks.ladder_page            # writes the pictures and the README's block
    python -m benchmarks.ladder_page --check    # exit code 1 where it would change something

Nothing is drawn of what was not measured or may not be compared: such a rung stands there with the reason.
"""

import sys
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from benchmarks import pages
from benchmarks.pages import replaced
from dynotune.bench.showing.grids import speed_cell
from dynotune.bench.showing.pictures import bench_pictures
from dynotune.errors import DataError
from dynotune.results import phrases
from dynotune.results.comparable import hidden
from dynotune.results.effects import PAIRS
from dynotune.results.result import Arm, Result, Verdict
from dynotune.say import amount
from dynotune.show.colours import variables
from dynotune.show.page import Heading, Picture

BEGIN, END = "<!-- ladder: begin, by `python -m benchmarks.ladder_page` -->", "<!-- ladder: end -->"
METHODS = {"sft": "SFT", "dpo": "DPO"}
CASES = {"sft": "ladder", "dpo": "ladder_dpo"}
"""By method its case of `benchmarks/case_list.py`, as it was measured on an H200."""

NAMES = {method: f"case_{case}_h200" for method, case in CASES.items()}
"""Of results and of their pictures."""


def measured(folder: Path) -> dict[str, Result]:
    """By method. Raises `DataError` for a file that is no ladder."""
    found = {}
    for method in METHODS:
        path = folder / f"{NAMES[method]}.json"
        if path.is_file():
            found[method] = Result.read(path)
            if not found[method].rungs:
                raise DataError(f"{path} is a bench of kind {found[method].kind}; `--ladder` makes a ladder.")
    return found


def picture(result: Result) -> str:
    """The rungs as an SVG of its own, light or dark as the reader's system asks."""
    parts = list(bench_pictures(result))
    at = next(i for i, part in enumerate(parts) if isinstance(part, Heading) and part.text == "The ladder")
    drawn = parts[at + 1]
    assert isinstance(drawn, Picture)
    css = (files("dynotune.show") / "templates" / "page.css").read_text(encoding="utf-8")
    own = "\n".join(line for line in css.splitlines() if line.startswith("svg ") and "max-width" not in line)
    return drawn.svg.replace("<title>", f"<style>{variables()}\n{own}</style>\n<title>", 1) + "\n"


def table(result: Result) -> str:
    """A row a rung."""
    memory = any(arm.memory for arm in result.rungs)
    peak, line = ("peak GiB | ", "---:|") if memory else ("", "")
    shared = any(arm.shares for arm in result.rungs)
    unit = "tokens of documents/s" if shared else "real tokens/s"
    lines = [f"| rung | {unit} | ms a step | this step | | {peak}MFU |", f"|---|---:|---:|---:|---|{line}---:|"]
    shut = hidden(result)
    lines += [f"| {' | '.join(_cells(result, arm, arm.name in shut, memory))} |" for arm in result.rungs]
    whole = next((one for one in result.comparisons if one.role == "whole"), None)
    said = f"All together: {speed_cell(result, whole).text}. " if whole else ""
    floor = f" Blocks of the same arm were up to {100 * result.noise.floor:.0f} % apart." if result.noise else ""
    gate = "" if result.parity else " Whether the rungs make the same updates was not checked in this bench."
    open_ = any(one.role == "step" and one.verdict is Verdict.UNRESOLVED for one in result.comparisons)
    doubt = " UNRESOLVED: by the bench's own rule such a step could be noise." if open_ else ""
    pairs = min((len(one.log_ratios) for one in result.comparisons if one.ratio is not None), default=0)
    few = "" if pairs >= PAIRS else f", fewer than the {PAIRS} that an effect is told by"
    seen = f" {amount(pairs, 'round')} of {amount(result.steps_a_block, 'step')}{few}." if pairs else ""
    once = (
        " What both answers of a pair begin with counts for each, and in MFU as often as it is computed."
        if shared
        else ""
    )
    return "\n".join([*lines, "", f"{said}{result.operating_point}.{seen}{floor}{doubt}{once}{gate}"])


def _cells(result: Result, arm: Arm, shut: bool, memory: bool) -> Iterator[str]:
    yield arm.name.replace("|", "\\|")
    rate, step = arm.per_second("tokens"), arm.seconds_a_step
    if arm.failed is not None or shut or rate is None or step is None:
        yield from (arm.failed or "not comparable", *[""] * (5 if memory else 4))
        return
    yield phrases.rate(rate / result.devices_of(arm))
    yield f"{1e3 * step:,.0f}"
    gained = next((one for one in result.comparisons if one.role == "step" and one.arm == arm.name), None)
    yield speed_cell(result, gained).text if gained else ""
    yield str(gained.verdict) if gained else ""
    if memory:
        yield phrases.gib(arm.memory.allocated) if arm.memory else ""
    yield f"{100 * arm.mfu:.1f} %" if arm.mfu is not None else ""


def block(results: dict[str, Result]) -> str:
    """What stands between the marks."""
    parts = []
    for method, result in results.items():
        name, page = NAMES[method], f"docs/cases/{CASES[method]}.md"
        parts.append(f"![The ladder of {METHODS[method]}](benchmarks/results/{name}.svg)")
        parts.append(table(result))
        parts.append(
            f"`python -m benchmarks.case_studies --only {CASES[method]} --shared SHARED --out OUT`, commit {result.commit}:"
            f" [JSON](benchmarks/results/{name}.json), [page]({page})."
        )
    return "\n\n".join(parts)


def made(folder: Path, page: Path) -> dict[Path, str]:
    """The pictures, and the page with its block. Raises `DataError` where no ladder was measured."""
    results = measured(folder)
    if not results:
        raise DataError(
            f"{folder} has none of {', '.join(f'{name}.json' for name in NAMES.values())}: no ladder was measured"
        )
    new = {folder / f"{NAMES[method]}.svg": picture(result) for method, result in results.items()}
    return {**new, page: replaced(page.read_text(encoding="utf-8"), block(results), BEGIN, END)}


def main(arguments: Sequence[str] | None = None) -> int:
    return pages.main("benchmarks.ladder_page", __doc__, made, arguments)


if __name__ == "__main__":
    sys.exit(main())
