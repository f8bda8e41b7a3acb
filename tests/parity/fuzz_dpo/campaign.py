"""Random preference runs, each trained by both: `python -m tests.parity.fuzz_dpo.campaign --first 1000 --cases 500`.

`--case N` repeats one and prints what Dynotune said.
"""

import argparse
import copy
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from tests.parity.fuzz.quiet import quiet
from tests.parity.fuzz_dpo.both import Side, model_of, our_side, tokenizer_of, trl_side, write_inputs
from tests.parity.fuzz_dpo.compare import differences
from tests.parity.fuzz_dpo.draw import Case, draw


@dataclass
class Verdict:
    """What became of the cases."""

    count: Counter[str] = field(default_factory=Counter)
    """`alike`, `said` to be otherwise by words of the case, `refused` in words, `different`."""

    found: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def add(self, case: Case, theirs: Side, ours: Side, different: list[str]) -> None:
        self.found += [f"{case}\n   {one}" for one in different[:5]]
        said = any(word in ours.told for word in case.said)
        kind = "refused" if ours.refusal is not None else "said" if said else "alike"
        if ours.refusal is not None:
            self.refusals.append(
                f"case {case.number}: {ours.refusal[:200]} (TRL: {(theirs.refusal or 'trains')[:200]})"
            )
        self.count["different" if different else kind] += 1

    def __str__(self) -> str:
        return "\n".join([", ".join(f"{n} {what}" for what, n in self.count.most_common()), *self.found])


def both(case: Case, folder: Path, **more: Any) -> tuple[Side, Side, list[str]]:
    """TRL, ours with `more` settings, and where they differ by more than TRL does from itself where the first weights are a
    rounding apart."""
    import datasets

    caches = mock.patch.object(datasets.config, "HF_DATASETS_CACHE", folder / "datasets")
    own = {"DYNOTUNE_CACHE": str(folder / "cache"), "XDG_CACHE_HOME": str(folder / "cache")}
    with caches, mock.patch.dict(os.environ, own):
        tokenizer = tokenizer_of(case)
        model = model_of(case, tokenizer)
        path = write_inputs(case, model, tokenizer, folder) if case.from_file else None
        theirs = trl_side(case, copy.deepcopy(model), copy.deepcopy(tokenizer), folder, path)
        ours = our_side(case, copy.deepcopy(model), copy.deepcopy(tokenizer), folder, path, **more)
        found = differences(case, theirs, ours)
        if found and theirs.rows and ours.rows:
            again = [_trl_again(case, model, tokenizer, folder, seed) for seed in range(2)]
            found = differences(case, theirs, ours, [side for side in again if side.rows])
    return theirs, ours, found


def _trl_again(case: Case, model: Any, tokenizer: Any, folder: Path, seed: int) -> Side:
    model, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1 + 1e-7 * torch.randn(p.shape, generator=generator))
    path = write_inputs(case, model, tokenizer, folder) if case.from_file else None
    return trl_side(case, model, copy.deepcopy(tokenizer), folder, path)


def campaign(numbers: Iterable[int]) -> Verdict:
    """Train these cases, each in a folder that is gone behind it."""
    verdict = Verdict()
    for number in numbers:
        with tempfile.TemporaryDirectory() as folder:
            case = draw(number)
            theirs, ours, found = both(case, Path(folder))
            verdict.add(case, theirs, ours, found)
    return verdict


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--first", type=int, default=0)
    arguments.add_argument("--cases", type=int, default=100)
    arguments.add_argument("--case", type=int, help="this one only")
    arguments.add_argument("--refusals", action="store_true", help="show what ours refuses, too")
    given = arguments.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    quiet()
    if given.case is not None:
        with tempfile.TemporaryDirectory() as folder:
            theirs, ours, found = both(draw(given.case), Path(folder))
        print(draw(given.case), ours.told, f"TRL: {theirs.refusal}", f"ours: {ours.refusal}", *found, sep="\n")
        return 1 if found else 0
    verdict = Verdict()
    for number in range(given.first, given.first + given.cases):
        one = campaign([number])
        verdict.count += one.count
        verdict.found += one.found
        for line in (*one.found, *(one.refusals if given.refusals else ())):
            print(line, flush=True)
    print(verdict.count)
    return 1 if verdict.found else 0


if __name__ == "__main__":
    sys.exit(main())
