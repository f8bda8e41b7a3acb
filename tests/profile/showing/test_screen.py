"""Promise: a profile fits a screen of 80 or 140 columns, and a command on it can be copied whole and run."""

import io
import shlex
from dataclasses import replace

import pytest
from rich.console import Console

from dynotune.profile.analysis.analyse import analyse
from dynotune.profile.analysis.findings import Findings
from dynotune.profile.foreign.as_record import measuring
from dynotune.profile.showing.screen import LINES, screen, show
from tests.profile.made import record, timed

SETTINGS = [f"--setting-{i}={i}" for i in range(12)]
WORDS = ["/opt/conda/envs/training/bin/python", "/home/somebody/a folder/finetune.py", *SETTINGS]


def findings(remedies: int = 1) -> Findings:
    half = timed(0.01, real_tokens=300, processed_tokens=1000)
    found = analyse(replace(record(timed=half), trainer="transformers", measuring=measuring(WORDS)))
    assert found.remedies[0].command.startswith("dynotune bench -- ")
    return replace(found, remedies=found.remedies[:1] * remedies, placement=("a place",) * 9, cannot_know=("why",) * 9)


def height(lines: list[str], width: int) -> int:
    return sum(-(-max(1, len(line)) // width) for line in lines)


@pytest.mark.parametrize("width", [80, 140])
def test_a_command_is_one_line_that_the_terminal_folds(width: int) -> None:
    found, out = findings(), io.StringIO()
    show(found, Console(file=out, width=width, force_terminal=True, color_system=None))
    lines = out.getvalue().splitlines()
    (command,) = [line.strip() for line in lines if line.startswith("   dynotune")]
    assert len(command) > 2 * width
    words = shlex.split(command)
    assert words[:3] == ["dynotune", "bench", "--"]
    assert words[3:] == [*WORDS, "::", *(word.replace(".py", "_edited.py") for word in WORDS)]
    assert max(len(line) for line in lines if command not in line) <= width


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("remedies", [1, 3, 20])
def test_what_has_no_room_is_left_out_whole_and_counted(width: int, remedies: int) -> None:
    found = findings(remedies)
    lines = [line.plain for line in screen(found, width)]
    assert height(lines, width) <= LINES
    commands = [line.strip() for line in lines if line.startswith("   dynotune")]
    assert commands
    assert set(commands) == {found.remedies[0].command}
    left = [line for line in lines if "more lines on the page" in line]
    assert bool(left) or len(commands) == remedies
