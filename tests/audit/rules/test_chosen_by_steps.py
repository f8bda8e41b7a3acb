"""Promise: a choice by steps a second is told where what a step holds differs, and no other choice."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited
from tests.audit.rules.scripts import said

SWEEP = """
import time
from sizes import CANDIDATES
{before}
for {over}:
    t = time.perf_counter()
    for _ in range(30):
        step({uses})
    rate = {rate} / (time.perf_counter() - t)
    {keeps}
{after}
"""
SIZES = "CANDIDATES = {{'a': {{'micro': 4, 'lr': 1}}, 'b': {{'micro': {}, 'lr': 2}}}}\n"
BEST = "best = max(best, (rate, bs))"


@pytest.mark.parametrize(
    ("over", "uses", "rate", "keeps", "found"),
    [
        ("bs in a.sizes", "bs", "30", BEST, True),
        ("max_len in lengths", "max_len", "30", "if rate > best: best = rate", True),
        ("bs in a.sizes", "bs", "30 * bs", BEST, False),
        ("bs in a.sizes", "bs", "30", "best = max(best, (rate * bs, bs))", False),
        ("bs in a.sizes", "bs", "30", "print(rate)", False),
        ("bs in range(30)", "bs", "30", BEST, False),
        ("impl in kinds", "impl", "30", "best = max(best, (rate, impl))", False),
        ("name, c in CANDIDATES.items()", "c['micro']", "30", "if rate > best: best = rate", True),
        ("name, c in CANDIDATES.items()", "c['lr']", "30", "if rate > best: best = rate", False),
    ],
)
def test_a_choice_in_code(tmp_path: Path, over: str, uses: str, rate: str, keeps: str, found: bool) -> None:
    text = SWEEP.format(before="", over=over, uses=uses, rate=rate, keeps=keeps, after="")
    assert bool(said("MSR005", tmp_path, text, sizes__py=SIZES.format(24))) is found


def test_candidates_of_one_size_are_compared_rightly(tmp_path: Path) -> None:
    over, keeps = "name, c in CANDIDATES.items()", "if rate > best: best = rate"
    text = SWEEP.format(before="", over=over, uses="c['micro']", rate="30", keeps=keeps, after="")
    assert not said("MSR005", tmp_path, text, sizes__py=SIZES.format(4))


def test_a_function_that_measures(tmp_path: Path) -> None:
    text = """
import time
def measure({0}):
    t = time.time()
    run({0})
    return 20 / (time.time() - t)
speeds = {{}}
for {0} in choices:
    speeds[{0}] = measure({0})
print(max(speeds, key=speeds.get))
"""
    assert said("MSR005", tmp_path / "a", text.format("bsz"))
    assert not said("MSR005", tmp_path / "b", text.format("kernel"))


SHELL = """#!/bin/bash
BEST=0
for {0} in 2 4 8; do
  ITS=$(python bench.py --x "${0}" | grep -oE '[0-9.]+ {1}' | cut -d' ' -f1)
  {2}
done
"""


@pytest.mark.parametrize(
    ("name", "unit", "picks", "found"),
    [
        ("BS", "it/s", 'if (( $(echo "$ITS > $BEST" | bc -l) )); then BEST=$ITS; fi', True),
        ("SEQ_LEN", "steps/s", 'echo "$ITS" >> all.txt; sort -rn all.txt | head -1', True),
        ("BS", "tokens/s", 'if (( $(echo "$ITS > $BEST" | bc -l) )); then BEST=$ITS; fi', False),
        ("SEED", "it/s", 'if (( $(echo "$ITS > $BEST" | bc -l) )); then BEST=$ITS; fi', False),
        ("BS", "it/s", "echo $ITS", False),
    ],
)
def test_a_choice_of_a_shell(tmp_path: Path, name: str, unit: str, picks: str, found: bool) -> None:
    files = {"sweep.sh": SHELL.format(name, unit, picks), "bench.py": "print(1)\n"}
    assert bool(audited(tmp_path, files, select=("MSR005",)).findings) is found


SCALING = (
    "import torch.distributed as dist\nworld = dist.get_world_size()\nids = make({})\nsave({{'its': 50 / took}})\n"
)
REPORT = "speedup = four['{0}'] / one['{0}']\nprint(f'4 GPUs: {{speedup:.2f}}x')\n"


@pytest.mark.parametrize(
    ("rows", "key", "found"), [("8", "its", True), ("64 // world", "its", False), ("8", "tokens_per_s", False)]
)
def test_a_quotient_across_gpus(tmp_path: Path, rows: str, key: str, found: bool) -> None:
    text = REPORT.format(key)
    assert bool(said("MSR005", tmp_path, text, scaling__py=SCALING.format(rows))) is found
