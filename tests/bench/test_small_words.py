"""Promise: what was mistyped is guessed, a folder of a bench is its result in every command, and an exit code says when no
other arm ran."""

from pathlib import Path

import pytest

from dynotune.bench.command import changes_of
from dynotune.cli import run
from dynotune.cli_measure import NOT_MET, exit_code
from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError
from dynotune.results.history import write_result
from dynotune.results.result import Expectation
from tests.bench import made


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("max_lenght=5", "there is no key `max_lenght`. Did you mean `max_length`? `dynotune sft --help`"),
        ("speedups.fused_lra=off", "there is no speed-up `fused_lra`. Did you mean `fused_lora`? `dynotune plan`"),
        ("quite_another=5", "there is no key `quite_another`. `dynotune sft --help`"),
    ],
)
def test_a_change_that_was_mistyped(word: str, said: str) -> None:
    config = SFTConfig(model_name_or_path="model", dataset_name="rows.jsonl")
    with pytest.raises(ConfigError) as raised:
        changes_of(config, [word])
    assert said in str(raised.value)


def test_the_exit_code_of_a_bench_of_which_one_arm_is_left() -> None:
    """Controls: of a sweep it is an answer, and of three arms two may still be compared."""
    gone, left = made.out_of_memory("b.yaml"), made.arm("a.yaml", 14_000)
    assert exit_code(made.ab(expectations=())) == 0
    assert exit_code(made.ab(expectations=(Expectation(text="speed>=2", observed="1.07x", met=False),))) == NOT_MET
    assert exit_code(made.ab(arms=(left, gone), expectations=())) == NOT_MET
    assert exit_code(made.ab(arms=(left, gone, made.arm("c.yaml", 15_000)), expectations=())) == 0
    assert exit_code(made.sweep(arms=(left, gone))) == 0


class TestFolder:
    @pytest.fixture(autouse=True)
    def here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
        monkeypatch.chdir(tmp_path)
        for name in ("old", "new"):
            Path(name).mkdir()
            write_result(made.ab(name=name), Path(name) / "bench.json")
        Path("empty").mkdir()

    @pytest.mark.parametrize("command", [["bench", "compare"], ["bench", "gate"], ["report", "--output", "both.html"]])
    def test_it_is_its_result(self, command: list[str]) -> None:
        assert run([*command, "old", "new"]) == 0
        assert run([*command, "old", "new/bench.json"]) == 0

    def test_one_that_holds_none_is_named(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["bench", "compare", "old", "empty"]) == 2
        assert "empty is a folder without a bench.json of a bench" in capsys.readouterr().err

    def test_it_can_be_withdrawn(self) -> None:
        assert run(["bench", "withdraw", "old", "--why", "counted padding"]) == 0
        assert run(["bench", "gate", "old", "new"]) == 2
