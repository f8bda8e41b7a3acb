"""Random configurations of `trl sft`, each trained by both: `python -m tests.parity.fuzz.campaign --first 0 --cases 200`.

`--case N` repeats one and prints what Dynotune said; `--shared DIR` takes real tokenizers as well (`DYNOTUNE_SHARED`).
"""

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from tests.parity.fuzz.both import Outcome, lay_out, run_ours, run_trl
from tests.parity.fuzz.compare import differences
from tests.parity.fuzz.draw import Draw, draw
from tests.parity.fuzz.quiet import quiet

REAL_EVERY = 10
"""One case of so many has a real tokenizer, where there are any."""


@dataclass
class Verdict:
    """What became of the cases."""

    count: Counter[str] = field(default_factory=Counter)
    """`trained` by both alike, `refused` by Dynotune in words, `failed in TRL` alone."""

    why: Counter[str] = field(default_factory=Counter)
    """Ends of the errors of cases that were not trained by both."""

    found: list[str] = field(default_factory=list)

    def add(self, d: Draw, theirs: Outcome, ours: Outcome) -> None:
        different = differences(d, theirs, ours)
        self.found += [f"case {d.seed} ({d.kind}, {d.form}): {one}" for one in different]
        kind = (
            "trained" if ours.error is None and theirs.error is None else "refused" if ours.error else "failed in TRL"
        )
        self.count["different" if different else kind] += 1
        if error := ours.error or theirs.error:
            self.why[f"{kind}: {type(error).__name__}: {str(error)[-90:]}".replace("\n", " ")] += 1

    def join(self, other: "Verdict") -> None:
        self.count += other.count
        self.why += other.why
        self.found += other.found

    def __str__(self) -> str:
        count = ", ".join(f"{n} {what}" for what, n in self.count.most_common())
        return "\n".join([count, *(f"  {n} x {why}" for why, n in self.why.most_common()), *self.found])


def drawn(number: int, shared: Path | None) -> Draw:
    """The case of this number."""
    return draw(number, real=shared is not None and number % REAL_EVERY == 0)


def both(d: Draw, folder: Path, shared: Path | None = None, **more: Any) -> tuple[Draw, Outcome, Outcome]:
    """Train one case on both sides in an empty folder. more: settings for our side alone."""
    import datasets

    caches = mock.patch.object(datasets.config, "HF_DATASETS_CACHE", folder / "datasets")
    with caches, mock.patch.dict(os.environ, {"DYNOTUNE_CACHE": str(folder / "cache")}):
        config = lay_out(d, folder, shared)
        return d, run_trl(d, config, folder / "trl"), run_ours(d, config, folder / "ours", **more)


def campaign(numbers: Iterable[int], shared: Path | None = None) -> Verdict:
    """Train these cases, each in a folder that is gone behind it."""
    verdict = Verdict()
    for number in numbers:
        with tempfile.TemporaryDirectory() as folder:
            verdict.add(*both(drawn(number, shared), Path(folder), shared))
    return verdict


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--first", type=int, default=0)
    arguments.add_argument("--cases", type=int, default=100)
    arguments.add_argument("--case", type=int, help="this one only")
    arguments.add_argument("--shared", type=Path, default=os.environ.get("DYNOTUNE_SHARED"))
    given = arguments.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    quiet()
    if given.case is not None:
        with tempfile.TemporaryDirectory() as folder:
            d, theirs, ours = both(drawn(given.case, given.shared), Path(folder), given.shared)
        print(
            d, f"TRL: {theirs.error!r}", f"Dynotune: {ours.error!r}", ours.said, *differences(d, theirs, ours), sep="\n"
        )
        return 0
    verdict = Verdict()
    for number in range(given.first, given.first + given.cases):
        some = campaign([number], given.shared)
        verdict.join(some)
        for line in some.found:
            print(line, flush=True)
    print(verdict)
    return 1 if verdict.found else 0


if __name__ == "__main__":
    sys.exit(main())
