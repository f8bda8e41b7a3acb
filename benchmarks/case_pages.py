"""The pages of the case studies, `docs/cases/`, made from the results in `benchmarks/results/`.

    python -m benchmarks.case_pages            # writes them
    python -m benchmarks.case_pages --check    # exit code 1 where it would change one

A case that nobody has measured has a page too, which says which command makes its result.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.case_list import CASES, Case, kept_of
from benchmarks.pages import RESULTS, ROOT, filled
from dynotune.bench.showing.grids import speed_cell
from dynotune.bench.showing.markdown import markdown
from dynotune.results import phrases
from dynotune.results.comparable import leave_with
from dynotune.results.result import Interval, Result

PAGES = ROOT / "docs" / "cases"
BY = "<!-- Written by `python -m benchmarks.case_pages`: change benchmarks/case_list.py, or measure again. -->"


def pages(results: Path) -> dict[str, str]:
    """By the name of its file, each page."""
    found = {name: results_of(name, results) for name in CASES}
    made = {
        f"{name}.md": page(name, case, found[name], found.get(case.beside, ()), results) for name, case in CASES.items()
    }
    return {"index.md": index(found), **made}


def results_of(name: str, results: Path) -> list[Path]:
    earlier = results / CASES[name].earlier
    return kept_of(name, results) or ([earlier] if earlier.is_file() else [])


def index(found: dict[str, list[Path]]) -> str:
    lines = ["| case | measured on |", "|---|---|"]
    for name, case in CASES.items():
        where = ", ".join(dict.fromkeys(_where(Result.read(path)) for path in found[name])) or "nothing yet"
        lines.append(f"| [{case.title}]({name}.md) | {where} |")
    text = filled(
        "What people believe of a setting, and what `dynotune bench` says of it. Each case is one command that anybody can"
        " run; its page is made from the result that the command left."
    )
    return "\n".join([BY, "# Case studies", "", text, "", *lines]) + "\n"


def page(name: str, case: Case, found: Sequence[Path], other_half: Sequence[Path], results: Path) -> str:
    """found: its results. other_half: those of the case that stands beside it. results: the folder of all."""
    parts = [f"{BY}\n# {case.title}", filled(case.asks), "\n".join(command(name, case))]
    halves = [(one, other) for one in found for other in other_half if _are_halves(one, other)]
    if case.older and found:
        parts.append(filled(case.older))
    parts += [side_by_side(case, *(Result.read(path) for path in both)) for both in halves]
    parts += [measured(path) for path in found] or [
        filled("No result of it is in `benchmarks/results/` yet: nothing is claimed. The command above makes one.")
    ]
    if case.withdrawn and (results / case.withdrawn).is_file():
        parts.append(withdrawn(results / case.withdrawn))
    return "\n\n".join(parts) + "\n"


def withdrawn(path: Path) -> str:
    """What was withdrawn, in a paragraph: its figures are in the file alone."""
    result = Result.read(path)
    assert result.withdrawn is not None, path
    where = path.relative_to(path.parents[2])
    text = f"{where}, {result.operating_point}, was withdrawn on {result.withdrawn.date[:10]}: {result.withdrawn.why}."
    return "## Withdrawn\n\n" + filled(text)


def command(name: str, case: Case) -> list[str]:
    return [
        "```console",
        f"python -m benchmarks.case_studies --only {name} --shared SHARED --out OUT",
        "```",
        "",
        filled(
            f"About {case.seconds} s on one H200, loading included; SHARED is a folder with `data`, `tokenizers` and"
            f" `tiny-lm`. With `--rehearse` in place of `--shared SHARED` it runs on a CPU, of a tiny model. The"
            f" configuration is `benchmarks/configs/{case.config}.yaml`."
        ),
    ]


def measured(path: Path) -> str:
    """One result, under the hardware that it was measured on."""
    result = Result.read(path)
    head = f"## On {_hardware(result)}"
    if str(result.model.get("device", "")).lower().startswith("cpu"):
        head += "\n\n" + filled(
            "A rehearsal of a tiny model on a CPU: it shows what the bench says of the case, and no speed of a GPU."
        )
    body = markdown(result, [str(path.relative_to(path.parents[2]))])
    return f"{head}\n\n{body.strip()}"


def _are_halves(one: Path, other: Path) -> bool:
    """Of the same work on the same kind of machine, both of them valid."""
    last, alone = Result.read(one), Result.read(other)
    same = (last.work, last.operating_point, last.definitions) == (alone.work, alone.operating_point, alone.definitions)
    valid = all(each.withdrawn is None and not each.cut_off for each in (last, alone))
    return same and valid and any(each.role == "alone" for each in alone.comparisons)


def side_by_side(case: Case, last: Result, alone: Result) -> str:
    """What each change does by itself, what it adds as the last one, and the second over the first."""
    base = alone.arms[0].name
    lines = [f"| change | alone, on {base} | added last | last over alone |", "|---|---:|---:|---:|"]
    first = {one.label: one for one in alone.comparisons if one.role == "alone"}
    for one in last.comparisons:
        if one.role == "last":
            mine, others = first.get(one.label), leave_with(last, one)
            with_them = f", with {others[0]}" if len(others) == 1 else f", with the {len(others)} that need it"
            cells = (
                speed_cell(alone, mine).text if mine else "",
                speed_cell(last, one).text + (with_them if others else ""),
                _over(mine.ratio, one.ratio) if mine and not others else "",
            )
            lines.append(f"| {one.label} | {' | '.join(cells)} |")
    text = filled(
        f"Two benches of the same operating point, so the last column, which is of one against the other, has the doubt of"
        f" both (commits {alone.commit} and {last.commit}); it is empty where others, which need a change, were left out"
        f" with it. [The other half]({case.beside}.md)."
    )
    return "\n".join([f"## Both halves on {_hardware(last)}", "", *lines, "", text])


def _over(alone: Interval | None, last: Interval | None) -> str:
    """The ratio of two ratios that were measured apart: half widths in ln add as squares."""
    if alone is None or last is None:
        return ""
    half = math.hypot(*(math.log(one.high / one.low) / 2 for one in (alone, last)))
    middle = last.estimate / alone.estimate
    return phrases.ratio(Interval(low=middle * math.exp(-half), estimate=middle, high=middle * math.exp(half)))


def _where(result: Result) -> str:
    """With a word on what was withdrawn: its page says why, and what holds instead."""
    return _hardware(result) + (" (withdrawn)" if result.withdrawn is not None else "")


def _hardware(result: Result) -> str:
    return f"{result.devices}x {result.machine.get('device', 'an unknown device')}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--pages", type=Path, default=PAGES)
    args = parser.parse_args(arguments)
    made = pages(args.results)
    there = {path.name: path.read_text(encoding="utf-8") for path in args.pages.glob("*.md")}
    if args.check:
        for name in sorted(made.keys() | there.keys()):
            if made.get(name) != there.get(name):
                print(f"{args.pages / name} is not what the results say: run `python -m benchmarks.case_pages`")
        return int(made != there)
    args.pages.mkdir(parents=True, exist_ok=True)
    for name in there.keys() - made.keys():
        (args.pages / name).unlink()
    for name, text in made.items():
        (args.pages / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
