"""The commands: quick to start, clear when wrong, and silent only when there is nothing to say."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dynotune import cli
from dynotune.config.dpo import DPOConfig
from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError
from dynotune.train.outside.signals import StoppedError
from tests.audit.speed import slower

HEAVY = ("torch", "transformers", "datasets", "pyarrow", "peft", "pydantic", "numpy")


def dynotune(*words: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """A whole process, as a user starts it."""
    return subprocess.run(
        [sys.executable, "-m", "dynotune", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "COLUMNS": "100", **env},
    )


class TestStart:
    def test_help_is_fast(self) -> None:
        """`dynotune --help` takes less than half a second of the processor, whole process (best of three: the machine is
        shared, and on a busy one the wall clock says how busy)."""
        best = 10.0
        for _ in range(3):
            before = os.times()
            done = dynotune("--help")
            after = os.times()
            spent = after.children_user + after.children_system - before.children_user - before.children_system
            best = min(best, spent)
            assert done.returncode == 0
        assert 0 < best < 0.5 * float(os.environ.get("DYNOTUNE_TEST_SLOWNESS", "2")) * slower()

    @pytest.mark.parametrize("code", ["import dynotune", "import dynotune.cli; dynotune.cli.run(['--help'])"])
    def test_nothing_heavy_is_imported(self, code: str) -> None:
        """Import time cannot creep back in, on any machine."""
        check = f"{code}; import sys; print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
        done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=300, check=True)
        assert done.stderr.strip() == "[]"

    def test_the_configuration_alone_imports_no_framework(self) -> None:
        """Checking a configuration needs neither PyTorch nor transformers."""
        heavy = "[m for m in ('torch', 'transformers', 'huggingface_hub', 'datasets') if m in sys.modules]"
        check = f"import sys, dynotune; dynotune.SFTConfig(); print({heavy})"
        done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=300, check=True)
        assert done.stdout.strip() == "[]"

    def test_package_exports(self) -> None:
        """`from dynotune import SFTConfig, train_sft`."""
        import dynotune

        assert dynotune.SFTConfig is SFTConfig
        assert set(dir(dynotune)) == set(dynotune.__all__)
        assert dynotune.__version__
        with pytest.raises(AttributeError, match="no_such_name"):
            _ = dynotune.no_such_name


class TestHelp:
    def test_lists_what_exists_and_nothing_else(self) -> None:
        """A command that is listed works."""
        text = dynotune("--help").stdout
        for name in ("sft", "dpo", "prepare", "merge", "demo", "env", "config-schema"):
            assert f" {name} " in text
        for name in cli.LATER:
            assert f" {name} " not in text

    @pytest.mark.parametrize("command", ["sft", "dpo", "prepare", "plan", "merge", "demo", "env", "config-schema"])
    def test_every_command_has_an_example(self, command: str) -> None:
        """`--help` shows a line that can be typed."""
        done = dynotune(command, "--help")
        assert done.returncode == 0
        assert f"dynotune {command}" in done.stdout.split("Example", 1)[1]

    def test_sft_groups_its_flags_and_shows_docstring_and_default(self) -> None:
        """The docstring under a field is its help."""
        text = " ".join(dynotune("sft", "--help", COLUMNS="200").stdout.replace("│", " ").split())
        for words in ("─ Model ─", "─ Adapter ─", "─ Optimizer ─", "Peak learning rate.", "default: 2e-05"):
            assert words in text
        for key in SFTConfig.model_fields:
            assert f"--{key} " in text
        assert "--load_in_8bit" not in text


class TestExitCodes:
    @pytest.mark.parametrize(
        ("words", "needle"),
        [
            (["sft"], "nothing to do"),
            (["sft", "--lerning_rate", "3"], "--learning_rate"),
            (["sft", "--config", "missing.yaml"], "missing.yaml"),
            (["sft", "--seed", "1"], "`model_name_or_path`"),
            (["sft", "--load_in_8bit"], "flag --load_in_8bit"),
            (["sft", "--micro-batch-size", "2"], "`per_device_train_batch_size`"),
            (["sft", "--fsdp_offload_params", "true"], "later work"),
            (["sft", "stray"], "stray"),
            (["prepare", "--show", "-1", "--model_name_or_path", "a", "--dataset_name", "b"], "--show"),
            (["dpo", "--config", "x.yaml"], "x.yaml"),
            (["dpo"], "`dynotune dpo --help`"),
            (["dpo", "--seed", "1"], "`model_name_or_path`"),
            (["dpo", "--packing"], "a pair stays a pair"),
            (["dpo", "--loss_type", "dop"], "loss_type"),
            (["sft", "--beta", "0.2"], "Train by `dynotune dpo`"),
            (["plan", "--beta", "0.2"], "`--method dpo`"),
            (["plan", "--method", "dpo", "--completion_only_loss", "true"], "both answers are always labelled"),
            (["tune"], "not in this version"),
            (["merge", "x"], "--output"),
            (["nonsense"], "nonsense"),
        ],
    )
    def test_a_mistake_is_two_and_no_traceback(
        self, words: list[str], needle: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
    ) -> None:
        """User errors name the thing, on stderr, and exit with 2."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("DYNOTUNE_TRACEBACK", raising=False)
        assert cli.run(words) == cli.USER_ERROR
        captured = capsys.readouterr()
        assert needle in captured.err
        assert "Traceback" not in captured.err
        assert captured.out == ""

    def test_traceback_on_request(self) -> None:
        """`DYNOTUNE_TRACEBACK=1` shows where an error was raised."""
        done = dynotune("sft", "--seed", "x", DYNOTUNE_TRACEBACK="1")
        assert done.returncode == cli.USER_ERROR
        assert "Traceback" in done.stderr

    def test_interrupt(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ctrl-C is 130, as shells have it."""

        def interrupted(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(cli, "app", interrupted)
        assert cli.run(["env"]) == 130

    def test_a_defect_is_one_and_says_so(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A defect is not dressed up as the user's mistake."""

        def broken(*_: Any, **__: Any) -> None:
            raise RuntimeError("broken")

        monkeypatch.setattr(cli, "app", broken)
        monkeypatch.setattr(sys, "argv", ["dynotune", "env"])
        with pytest.raises(RuntimeError, match="broken"):
            cli.main()
        assert "defect of Dynotune" in capsys.readouterr().err

    def test_a_closed_pipe_is_fine(self) -> None:
        """`dynotune ... | head` ends quietly, whether we print or rich does."""
        for words, codes in (("config-schema", {141}), ("sft --help", {1, 141})):
            reader, writer = os.pipe()
            os.close(reader)
            command = [sys.executable, "-m", "dynotune", *words.split()]
            done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
            os.close(writer)
            assert done.stderr == ""
            assert done.returncode in codes

    def test_a_terminal_that_lacks_characters_ends_nothing(self, tmp_path: Path) -> None:
        """An ASCII terminal shows `?` for what it lacks."""
        (tmp_path / "c.yaml").write_text("größe: 1\n", encoding="utf-8")
        done = dynotune("sft", "--config", str(tmp_path / "c.yaml"), PYTHONIOENCODING="ascii")
        assert done.returncode == cli.USER_ERROR
        assert "`gr??e: 1`" in done.stderr

    def test_errors_hold_no_control_characters_and_no_secrets(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Whatever raised them: a data file's name and a model's settings are others' text."""

        def fails(*_: Any, **__: Any) -> None:
            raise ConfigError("first \x1b[2J\nsecond https://u:s3cret@h/x")

        monkeypatch.setattr(cli, "app", fails)
        assert cli.run(["env"]) == cli.USER_ERROR
        assert capsys.readouterr().err == "error: first \\x1b[2J\nsecond https://(hidden)@h/x\n"


class TestInterrupt:
    """Ctrl-C says what is kept."""

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_what_the_run_says_is_repeated(
        self, number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def stopped(*_: Any, **__: Any) -> None:
            raise StoppedError(number, "the last checkpoint is out/checkpoints/step-20")

        monkeypatch.setattr(cli, "app", stopped)
        assert cli.run(["env"]) == 128 + number
        who = "" if number == signal.SIGINT else " by SIGTERM"
        assert capsys.readouterr().err == f"\ninterrupted{who}; the last checkpoint is out/checkpoints/step-20\n"

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
    def test_a_real_signal(self, number: signal.Signals) -> None:
        """The command-line library does not swallow it, and what asks for a checkpoint ends nothing."""
        code = "import sys, dynotune.cli as c, os, signal, time, dynotune.environment as e; "
        # A test run in the background of a shell hands down an ignored SIGINT, which Python would leave ignored.
        code += "signal.signal(signal.SIGINT, signal.default_int_handler); sys.argv[1:] = ['env']; "
        code += f"e.collect = lambda **k: (os.kill(os.getpid(), {int(number)}), time.sleep(0.1), sys.exit(7)); c.main()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == (7 if number == signal.SIGUSR1 else 128 + number)
        assert "Traceback" not in done.stderr
        assert (number == signal.SIGUSR1) == ("interrupted" not in done.stderr)


class TestDpo:
    def test_a_trl_file_and_flags(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        """DPO's keys, from a file and from flags, with TRL's defaults for the rest."""
        (tmp_path / "dpo.yaml").write_text("beta: 0.2\nloss_type: sigmoid\n")
        words = ["dpo", "--config", str(tmp_path / "dpo.yaml"), "--loss_type", "sigmoid", "sft", "--ld-alpha", "0.5"]
        assert cli.run([*words, "--print_config"]) == cli.DONE
        printed = yaml.safe_load(capsys.readouterr().out)
        expected = {"beta": 0.2, "loss_type": ["sigmoid", "sft"], "ld_alpha": 0.5, "learning_rate": 1e-6}
        assert {key: printed[key] for key in expected} == expected
        assert "packing" not in printed

    @pytest.mark.parametrize("command", ["prepare", "plan"])
    def test_other_commands_take_its_configuration(
        self, command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        """`--method dpo` reads it with the same checks."""
        (tmp_path / "dpo.yaml").write_text("beta: 0.2\n")
        assert cli.run([command, "--method", "dpo", "--config", str(tmp_path / "dpo.yaml"), "--print_config"]) == 0
        assert yaml.safe_load(capsys.readouterr().out)["beta"] == 0.2

    def test_its_schema_is_its_own(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Editors complete `beta` in a DPO configuration and not in one of SFT."""
        for method, there in (("dpo", True), ("sft", False)):
            assert cli.run(["config-schema", "--method", method]) == cli.DONE
            beta = json.loads(capsys.readouterr().out)["properties"]["beta"]
            assert beta.get("deprecated", False) is not there


class TestSft:
    def test_trl_spellings(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        """Underscores, hyphens, equal signs, switches with and without a word, lists, `--no_` and JSON."""
        (tmp_path / "sft.yaml").write_text("learning_rate: 1e-3\nseed: 7\n")
        words = [
            *("--config", str(tmp_path / "sft.yaml"), "--learning-rate", "1e-5", "--weight_decay=0.1"),
            *("--use_peft", "--use_dora", "True", "--lora_target_modules", "q_proj", "v_proj"),
            *("--max-steps", "-1", "--report_to", "none", "--no_gradient_checkpointing"),
            *("--model_init_kwargs", '{"a": 1}', "--max_length", "none", "--gradient-accumulation-steps", "4"),
        ]
        assert cli.run(["sft", *words, "--print_config"]) == cli.DONE
        printed = yaml.safe_load(capsys.readouterr().out)
        expected = {
            "seed": 7,
            "learning_rate": 1e-5,
            "weight_decay": 0.1,
            "use_peft": True,
            "use_dora": True,
            "lora_target_modules": ["q_proj", "v_proj"],
            "max_steps": -1,
            "report_to": "none",
            "gradient_checkpointing": False,
            "model_init_kwargs": {"a": 1},
            "max_length": None,
            "gradient_accumulation_steps": 4,
        }
        assert {key: printed[key] for key in expected} == expected

    def test_flags_of_commands_are_no_keys(self) -> None:
        """A key of the configuration can never be shadowed by a command's own flag."""
        own = {"config", "json", "show", "print_config", "as_json", "method"}
        assert not own & {*SFTConfig.model_fields, *DPOConfig.model_fields}

    def test_json_keeps_stdout_for_the_result(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A program that reads `--json` sees one JSON object, whatever else is printed."""
        import types

        seen: list[SFTConfig] = []

        def train_sft(config: SFTConfig, **_: Any) -> Any:
            seen.append(config)
            print("progress")
            return types.SimpleNamespace(folder=Path("runs/a"), steps=3, summary={"loss": 1.0})

        module = types.ModuleType("dynotune.train.sft")
        module.train_sft = train_sft  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "dynotune.train.sft", module)
        assert cli.run(["sft", "--json", "--model_name_or_path", "m", "--dataset_name", "d"]) == cli.DONE
        captured = capsys.readouterr()
        assert json.loads(captured.out) == {"folder": "runs/a", "steps": 3, "summary": {"loss": 1.0}}
        assert "progress" in captured.err
        assert seen[0].model_name_or_path == "m"


def test_prepare_shows_rows_and_accounts(stories: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`dynotune prepare` reads all data without training; `--show` prints rows."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "One day", "completion": " a cat sat."}\n' * 3)
    words = ["--model_name_or_path", str(stories), "--dataset_name", str(rows)]
    assert cli.run(["prepare", *words, "--json"]) == cli.DONE
    prepared = json.loads(capsys.readouterr().out)
    assert prepared["training data"]["ledger"]["rows_read"] == 3
    assert cli.run(["prepare", *words, "--show", "1"]) == cli.DONE
    shown = capsys.readouterr().out
    assert "a cat sat" in shown
    assert shown.index("a cat sat") < shown.index("exact-duplicate")  # rows first, then what became of all


def test_config_schema_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Editors can be pointed at its output."""
    assert cli.run(["config-schema"]) == cli.DONE
    assert "learning_rate" in json.loads(capsys.readouterr().out)["properties"]
