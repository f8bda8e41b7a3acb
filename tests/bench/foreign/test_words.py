"""Promise: on the command line, commands and configurations do not mix, and an error names both."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dynotune.bench.foreign import command
from dynotune.bench.foreign.command import Options, bench
from dynotune.cli import run
from dynotune.cli_commands import behind_the_dashes, require_only_commands
from dynotune.command_line import WORDS
from dynotune.errors import ConfigError
from tests.bench.foreign.arms import TRAINER


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--vs", "b.yaml", "--", "a", "::", "b"], "`--vs` and commands behind `--` are both given"),
        (
            ["--learning_rate", "1", "--rev", "A", "--rev", "B", "--", "a"],
            "`--learning_rate` and `--rev` are both given",
        ),
        (["python", "a.py"], "`python` is no command of `dynotune bench`"),
        (["--rev", "A", "--rev", "B", "--", "a", "::", "b"], "one command at two commits"),
        (["--unknown", "--", "a", "::", "b"], "Unknown option"),
    ],
)
def test_what_does_not_go_together_is_said(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", *words]) == 2
    assert why in capsys.readouterr().err


def test_flags_of_configurations_are_refused_and_no_others() -> None:
    require_only_commands({"vs": None, "ladder": False}, ())
    for value in (True, "x", 0, []):
        with pytest.raises(ConfigError, match="`--tier` and `--rev`"):
            require_only_commands({"vs": None, "tier": value}, ("A",))


def test_words_of_a_command_are_needed() -> None:
    for revisions, setup, named in ((("A",), True, "--rev"), ((), True, "--setup"), ((), False, "--other_work")):
        with pytest.raises(ConfigError, match=f"`{named}` needs a command behind"):
            behind_the_dashes((), revisions=revisions, setup=setup)
    WORDS.set(("bench", "--", "a"))
    with pytest.raises(ConfigError, match="prepares the commits of `--rev`"):
        behind_the_dashes(("a",), revisions=(), setup=True)
    assert behind_the_dashes(("a",), revisions=(), setup=False) == ("a",)


def test_one_command_is_nothing_to_compare() -> None:
    with pytest.raises(ConfigError, match="one command is nothing to compare"):
        bench(Options(["a"]), Console())


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"budget": math.nan}, "A budget of nan seconds is none"),
        ({"budget": math.inf}, "A budget of inf seconds is none"),
        ({"resolution": math.nan}, "A resolution of nan is none"),
        ({"pairs": 0}, "A bench of 0 to 6 pairs cannot be"),
        ({"most_pairs": 0}, "A bench of 6 to 0 pairs cannot be"),
        ({"seed": -1}, "`--bench_seed -1` is no seed"),
    ],
    ids=str,
)
def test_numbers_that_measure_nothing_are_refused_before_a_command_runs(
    how: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: with others it comes to the commands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command.device, "ask", lambda: pytest.fail("it began"))
    with pytest.raises(ConfigError, match=said):
        bench(Options(["a", "::", "b"], **how), Console())
    with pytest.raises(pytest.fail.Exception, match="it began"):
        bench(Options(["a", "::", "b"], budget=1e9, pairs=2, most_pairs=2), Console())


@pytest.mark.parametrize(("type_", "unit"), [("cpu", "seconds"), ("cuda", "GPU seconds")])
def test_a_budget_of_commands_is_of_what_their_machine_has(
    type_: str, unit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command.device, "ask", lambda: {"type": type_})
    monkeypatch.setattr(command, "measure", lambda asked, *_: pytest.fail(f"in {asked.rules.unit}."))
    with pytest.raises(pytest.fail.Exception, match=f"^in {unit}\\."):
        bench(Options(["a", "::", "b"], budget=10.0), Console())


@pytest.mark.long
def test_commands_from_words_to_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    one, other = (
        [
            sys.executable,
            str(TRAINER),
            json.dumps({"tokens": 1000, "seconds": 0.31, "more": {"steps": 3, "seconds": s}}),
        ]
        for s in (0.3, 0.1)
    )
    words = ["bench", "--pairs", "2", "--most_pairs", "2", "--out", "out", "--expect", "speed>=2", "--json", "--"]
    assert run([*words, *one, "::", *other]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "foreign"
    assert found["comparisons"][0]["verdict"] == "FASTER"
    assert found["expectations"][0]["met"]
    assert (tmp_path / "out" / "bench.json").is_file()
    assert len(list((tmp_path / "out" / "logs").glob("*.out.log"))) == 10
