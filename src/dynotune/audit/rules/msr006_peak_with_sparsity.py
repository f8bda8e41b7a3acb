"""MSR006: a share of the GPU's peak is taken of a peak that dense matrices never reach."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

SPARSE = {
    1979.0: ("H100 and H200 SXM", 989.5),
    1978.9: ("H100 and H200 SXM", 989.5),
    1513.0: ("H100 PCIe", 756.5),
    1671.0: ("H100 NVL", 835.5),
    624.0: ("A100", 312.0),
    733.0: ("L40S", 366.5),
    4500.0: ("B200", 2250.0),
    242.0: ("L4", 121.0),
}
"""Teraflops of 16-bit products with 2:4 sparsity, as data sheets print them first, whose they are, and those without it."""

_FOR_A_SHARE = re.compile(r"\bmfu\b|hfu|utili[sz]ation|flops?_util|_mfu|of_peak|peak", re.IGNORECASE)
_NAMED = re.compile(r"peak|flops|H100|H200|A100|L40S|B200|\bL4\b", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.])(\d[\d_]*(?:\.\d+)?)(?:e(\d+))?(?![\w.])", re.IGNORECASE)
_HALVED = re.compile(r"/ ?2\b|\* ?0?\.5\b|sparse|sparsity|fp8|float8|int8", re.IGNORECASE)


def check(script: Script, project: Project) -> Iterator[Said]:
    source = code(script)
    if not _NAMED.search(source) or not any(_FOR_A_SHARE.search(code(one)) for one in connected(script, project)):
        return
    for number, line in enumerate(source.split("\n"), 1):
        if not _NAMED.search(line) or _HALVED.search(script.source.split("\n")[number - 1]):
            continue
        for found in _NUMBER.finditer(line):
            known = SPARSE.get(_teraflops(float(found[1].replace("_", "")), int(found[2] or 0)))
            if known is None:
                continue
            card, dense = known
            yield Finding(
                f"`{found[0]}` is what {card} reaches in bfloat16 with 2:4 sparsity; dense matrices have half of it,"
                f" {dense:g} teraflops: every share of the peak comes out at half of what it is.",
                place=Place(script.file, number, found.start() + 1, number, found.end() + 1),
                evidence=Evidence(Level.TEXT, {"peak": found[0], "dense": dense}),
                stake=Stake(AtStake.FIGURES),
                remedy=Remedy(Risk.SAFE, f"Divide by {dense:g}e12.", effort=Effort.LINE),
            )
            return


def _teraflops(number: float, power: int) -> float:
    """`1979`, `1979e12` and `1.979e15` are the same peak."""
    return round(number * 10 ** (power - 12) if power else number, 1)


_SCRIPT = """import time

import torch

PEAK_FLOPS = {peak}


def mfu(parameters, tokens, start):
    return 6 * parameters * tokens / (time.time() - start) / PEAK_FLOPS
"""
RULE = Rule(
    code="MSR006",
    name="peak-with-sparsity",
    summary="A share of the GPU's peak is of a peak with sparsity.",
    group=Group.MEASURE,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="Data sheets print the speed of matrix products with 2:4 sparsity, where two of four weights are zero. Training"
        " multiplies dense matrices, which reach half of it.",
        why="The utilisation that is reported is half of what it is, and is compared with others' that are not.",
        detected="E0: a number of the data sheet in a line that speaks of a peak, of FLOPs or of the card, in a program that"
        " reports a utilisation. Nothing is said where the line halves it, or speaks of sparsity or 8 bits.",
        proven="`dynotune profile -- python train.py` states the share of the dense peak.",
        deliberate=("The weights are pruned two of four, and the kernels use it.",),
        sources=("NVIDIA's data sheets of A100, H100, L40S, L4 and B200: figures with a footnote on sparsity",),
    ),
    bad=Example({"train.py": _SCRIPT.format(peak="1979e12  # H100 SXM")}, says="half of what it is"),
    also_bad=(
        Example({"train.py": _SCRIPT.format(peak="1.979e15")}, says="989.5"),
        Example({"train.py": _SCRIPT.format(peak="624 * 10**12")}, says="A100"),
        Example({"train.py": _SCRIPT.format(peak='{"A100": 312e12, "H100": 1979e12}["H100"]')}, says="H100"),
    ),
    good=Example({"train.py": _SCRIPT.format(peak="989.4e12  # H100 SXM, dense")}),
)
