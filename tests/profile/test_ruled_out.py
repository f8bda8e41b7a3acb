"""Promise: what was measured to gain nothing on this GPU in such steps is not advised, and that is said with its file."""

from dataclasses import replace
from pathlib import Path

import pytest

from dynotune.model.compiled.expected_gain import FIGURES
from dynotune.profile.analysis.analyse import analyse
from dynotune.profile.analysis.findings import Findings
from dynotune.profile.records.record import Environment, Record
from dynotune.profile.records.record_file import read_record
from dynotune.profile.showing.markdown import markdown
from dynotune.profile.showing.page import page

HERE = Path(__file__)
STEP = HERE.parent / "data" / "h200_step.json.gz"
SOURCE = FIGURES["NVIDIA H200", "lora"].source


@pytest.fixture(scope="module")
def kept() -> Record:
    return read_record(STEP)


def advised(findings: Findings) -> list[str]:
    return [one.name for one in findings.remedies]


def test_compiled_layers_were_not_faster_in_such_steps(kept: Record) -> None:
    findings = analyse(kept)
    assert "compiled_layers" not in advised(findings)
    (said,) = findings.ruled_out
    assert "speedups.compiled_layers=on" in said
    assert SOURCE in said
    assert (HERE.parents[2] / SOURCE).is_file()
    assert SOURCE in markdown(findings)
    assert SOURCE in page(findings)


def test_another_gpu_or_other_steps_are_not_judged_by_it(kept: Record) -> None:
    """The control."""
    elsewhere = replace(kept, environment=replace(kept.environment, machine={"device": "NVIDIA A100"}))
    few = replace(kept, environment=replace(kept.environment, world=8))
    full = replace(kept, model=replace(kept.model, adapter_ranks=()))
    for other in (elsewhere, few, full):
        findings = analyse(other)
        assert "compiled_layers" in advised(findings)
        assert findings.ruled_out == ()


def test_what_the_allocator_keeps_is_said_where_it_is_much(kept: Record) -> None:
    assert analyse(kept).memory == (
        "peak 85.0 GiB allocated, 125.7 reserved of 140, at least 40.8 of them unused (the allocator keeps them for other"
        " sizes)"
    )
    less = replace(kept, memory=replace(kept.memory, peak_reserved=kept.memory.peak_allocated))
    assert analyse(less).memory == "peak 85.0 GiB allocated, 85.0 reserved of 140"


def test_who_makes_batches_is_said_in_words_of_whose_loop_it_is(kept: Record) -> None:
    assert "16 cores, batches made ahead by a thread" in analyse(kept).placement[-1]
    theirs = replace(kept, trainer="trl", environment=Environment("cuda", cores=16, loader_workers=1))
    assert analyse(theirs).placement[-1] == "host: 16 cores, 1 loader worker"
