"""Many cases of one kind, one after another in this process: `python -m tests.fuzz.campaign KIND [--cases N] [--case I]`."""

import argparse
import gc
import os
import random
import resource
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.fuzz.judge import Verdict, judge
from tests.fuzz.targets import Checkpoints, Configurations, Models, PairRows, Rows, Stores, Target, Tokenizers

KINDS: dict[str, Callable[[Path], Target]] = {
    "configurations": lambda made: Configurations(),
    "rows": lambda made: Rows(),
    "pairs": lambda made: PairRows(),
    "tokenizers": Tokenizers,
    "stores": Stores,
    "checkpoints": Checkpoints,
    "models": Models,
}


def place_for(target: Target, folder: Path, chance: random.Random) -> str:
    """Write the files of one case, one or two of them mutated. Returns which."""
    touched = chance.sample(sorted(target.ways), chance.choice((1, 1, 1, min(2, len(target.ways)))))
    for name, content in target.meant.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(target.ways[name](chance, content) if name in touched else content)
    return ", ".join(touched)


def campaign(target: Target, cases: Iterable[int], yard: Path, keep: Path | None = None) -> Verdict:
    """Judge the cases with these numbers. `keep`: where the files of cases with defects are put."""
    verdict = Verdict()
    yard.mkdir(exist_ok=True)
    _as_meant(target, yard)
    gc.collect()
    gc.freeze()  # a collection would walk every module of PyTorch
    try:
        for number in cases:
            chance = random.Random(f"{target.name} {number}")
            folder = yard / "case"
            folder.mkdir(parents=True)
            touched = place_for(target, folder, chance)
            if keep is not None:
                shutil.copytree(folder, yard / "before")
            found = len(verdict.defects)
            judge(
                verdict,
                f"case {number} ({touched})",
                lambda folder=folder, chance=chance: target.run(folder, chance),
                folder,
            )
            if keep is not None:
                if len(verdict.defects) > found:
                    shutil.copytree(yard / "before", keep / f"{target.name}-{number}", dirs_exist_ok=True)
                shutil.rmtree(yard / "before")
            shutil.rmtree(folder)
    finally:
        gc.unfreeze()
    strange = sorted(path.name for path in yard.iterdir())
    if strange:
        verdict.defects.append(f"left beside the cases: {strange}")
    return verdict


def _as_meant(target: Target, yard: Path) -> None:
    """The files as they were meant are taken: mutations of what is refused anyway would find nothing."""
    folder = yard / "case"
    for number in range(3):
        for name, content in target.meant.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content or target.ways[name](random.Random(0), content))
        verdict = Verdict()
        judge(verdict, "as meant", lambda: target.run(folder, random.Random(number)), folder)  # noqa: B023
        assert verdict.taken or not target.strict, f"{target.name}: {verdict.refused or verdict.defects}"
        shutil.rmtree(folder)


def quiet() -> None:
    """Libraries show progress and warn of each case; and an endless template costs a minute, which is too long here."""
    import transformers

    from dynotune.data.templates import bounds

    bounds.LONGEST = 0.3

    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    warnings.simplefilter("ignore")


def limit_memory(more: int = 3 << 30) -> None:
    """Bound this process' address space: a case that asks for all memory then fails here, and not the machine."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (held + more, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("kind", choices=KINDS)
    arguments.add_argument("--cases", type=int, default=1000)
    arguments.add_argument("--case", type=int, help="this one only")
    arguments.add_argument("--keep", type=Path)
    given = arguments.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    quiet()
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "made")
        made.mkdir()
        target = KINDS[given.kind](made)
        yard = Path(folder, "yard")
        yard.mkdir()
        limit_memory()
        cases = range(given.cases) if given.case is None else [given.case]
        verdict = campaign(target, cases, yard, given.keep)
    print(verdict.told(target.name))
    for place, count in verdict.refused.most_common(30):
        print(f"  refused {count:,} x {place}")
    for defect in verdict.defects:
        print(f"  DEFECT {defect}")
    return 1 if verdict.defects else 0


if __name__ == "__main__":
    sys.exit(main())
