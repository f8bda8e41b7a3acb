"""Pages that are made from results: lines of one width, a block between two marks, and the command that writes or checks."""

import argparse
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dynotune.errors import DataError

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
WIDTH = 125


def filled(*sentences: str) -> str:
    """In lines of the width of our pages. A link is not broken."""
    return textwrap.fill(" ".join(sentences), WIDTH, break_long_words=False, break_on_hyphens=False)


def replaced(page: str, text: str, begin: str, end: str) -> str:
    """The page with `text` between the marks. Raises `DataError` where it has not each of them once, in order."""
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise DataError(f"the page needs the lines\n{begin}\n{end}\nonce each, in this order, where the tables go")
    head, rest = page.split(begin)
    return f"{head}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}"


def main(
    module: str, doc: str | None, made: Callable[[Path, Path], Mapping[Path, str]], arguments: Sequence[str] | None
) -> int:
    """The command of a page: writes what is not as it should be, or with `--check` only says so, by exit code 1.

    made: from the folder of results and the page, the text of each file.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=ROOT / "README.md")
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args(arguments)
    new = made(args.results, args.page)
    stale = [path for path, text in new.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if args.check:
            print(f"{path.name} is not what the results say: run python -m {module}", file=sys.stderr)
        else:
            path.write_text(new[path], encoding="utf-8")
    return int(args.check and bool(stale))
