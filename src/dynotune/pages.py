"""`dynotune report`: runs and benches as one page."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dynotune.bench.showing.page import bench_section
from dynotune.errors import ConfigError, DataError
from dynotune.printable import printable
from dynotune.report.run_page import NAME, is_run, run_section
from dynotune.report.runs_beside import runs_beside
from dynotune.results.history import IN_FOLDER, History
from dynotune.results.result import Result
from dynotune.show.page import Lines, Part, Section, Table, render, write_page


def report(names: Sequence[str], output: Path | None) -> Path:
    """Write the page and return where. names: run folders, results by file, by the bench's folder or by
    their name in the history.

    output: default: `report.html` in the folder of a single run; beside the file of a single result, with its name; else in
    the current folder, where nothing is replaced. Raises `ConfigError` or `DataError`.
    """
    if not names:
        raise ConfigError("name a run folder or a result of a bench: `dynotune report runs/my-run`.")
    sections: list[Section] = []
    results: list[Result] = []
    runs: list[Path] = []
    places_of_runs: list[int] = []
    places_of_results: list[int] = []
    for name in names:
        path = Path(name)
        if is_run(path):
            runs.append(path)
            places_of_runs.append(len(sections))
            sections.append(run_section(path))
        elif path.is_dir() and not (path / IN_FOLDER).is_file():
            raise DataError(
                f"{printable(name)} is no run folder, which has a plan.json, metrics.jsonl or summary.json, and holds no"
                f" {IN_FOLDER} of a bench."
            )
        else:
            result, _ = History().find(name)
            results.append(result)
            places_of_results.append(len(sections))
            sections.append(bench_section(result))
    for of_a_kind in (places_of_runs, places_of_results):  # by the number that each has in the table above them
        for number, at in enumerate(of_a_kind if len(of_a_kind) > 1 else (), 1):
            sections[at] = replace(sections[at], title=f"{number}. {sections[at].title}")
    target = output or _default(names)
    if output is None and len(names) > 1 and target.exists():
        raise ConfigError(f"{target} is there already. Name another file with `--output`.")
    write_page(target, render(_title(sections), sections, [*runs_beside(runs), *_beside(results)]))
    return target


def _default(names: Sequence[str]) -> Path:
    if len(names) > 1:
        return Path(NAME)
    path = Path(names[0])
    if path.is_dir():
        return path / NAME
    return path.with_suffix(".html") if path.is_file() else Path(f"{Path(names[0]).name}.html")


def _title(sections: Sequence[Section]) -> str:
    return (
        f"dynotune report: {sections[0].title}"
        if len(sections) == 1
        else f"dynotune report: {len(sections)} side by side"
    )


def _beside(results: Sequence[Result]) -> list[Part]:
    """What changed between several benches; where their definitions differ they are shown, and not compared."""
    if len(results) < 2:
        return []
    from dynotune.bench.keeping.between import require_same_definitions, said_beside
    from dynotune.bench.showing.table import beside, legend
    from dynotune.show.grids import Line, Tone

    try:
        require_same_definitions(results)
    except DataError as error:
        return [Lines((Line(printable(str(error), 600), Tone.BAD),))]
    notes = tuple(Line(f"note: {text}", Tone.DOUBT) for text in said_beside(results))
    return [Table(beside(results)), Lines(tuple(legend(results))), *([Lines(notes)] if notes else [])]
