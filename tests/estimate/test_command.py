"""Promise: `dynotune plan` says what the run then does, without training, and a program can read it."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dynotune import DPOConfig, SFTConfig, train_dpo, train_sft
from dynotune.command_line import SHOW_MEMORY
from dynotune.estimate.command import _time, plan_run
from tests.tiny import chats, sentences, tiny_model, tiny_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_model().save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chats(90)))
    return tmp_path


def config_of(folder: Path, **keys: Any) -> SFTConfig:
    return SFTConfig(
        **{
            "model_name_or_path": str(folder / "model"), "dataset_name": str(folder / "data.jsonl"), "use_cpu": True,
            "per_device_train_batch_size": 8, "num_train_epochs": 1, "token_cache": "off",
            "output_dir": str(folder / "run"), "save_strategy": "no", **keys,
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"packing": True, "max_length": 96},
        {"packed_execution": "off"},
        {"micro_batch_tokens": 256, "max_length": 40},
    ],
    ids=str,
)
def test_the_plan_is_the_runs_plan(folder: Path, keys: dict[str, Any]) -> None:
    config = config_of(folder, **keys)
    planned = plan_run(config, Console(quiet=True))
    assert not (folder / "run").exists()  # nothing trains, nothing is written
    result = train_sft(config, console=Console(quiet=True))
    ran = json.loads((result.folder / "plan.json").read_text())
    assert planned["plan"] == ran
    assert result.steps == planned["plan"]["steps"]
    assert planned["plan"]["layout"]["documents_lost"] == 0
    ledger = json.loads((result.folder / "ledger.json").read_text())
    assert planned["ledger"]["tokens_used"] == ledger["tokens_used"]
    whole = planned["tokens"]["real"] + planned["tokens"]["last"]
    assert planned["ledger"]["tokens_used"] == whole
    assert planned["tokens"]["read"] == whole + planned["tokens"]["truncated"]
    documents = planned["plan"]["packing"]["documents"] if "packing" in keys else planned["plan"]["examples"]
    assert planned["tokens"]["last"] == (0 if "packed_execution" in keys else documents)
    assert planned["time"]["seconds"] is None
    # a second plan knows how fast the run was
    rate = result.summary["tokens_per_second"]
    again = plan_run(config, Console(quiet=True))["time"]
    assert again["tokens_per_second"] == rate
    assert again["seconds"] == pytest.approx(planned["tokens"]["real"] / rate)


@pytest.mark.parametrize(
    "keys", [{}, {"speedups": {"shared_prompt": "off"}, "loss_type": ["aot"]}, {"packed_execution": "off"}], ids=str
)
def test_the_plan_of_pairs_is_the_runs_plan(
    folder: Path, keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever pairs share there."""
    monkeypatch.setenv("DYNOTUNE_CACHE", str(folder / "cache"))
    texts = sentences(90)
    rows = [{"prompt": next(texts), "chosen": f" {next(texts)}", "rejected": f" {next(texts)}"} for _ in range(30)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = DPOConfig(
        model_name_or_path=str(folder / "model"), dataset_name=str(folder / "pairs.jsonl"), use_cpu=True, max_steps=3,
        per_device_train_batch_size=8, output_dir=str(folder / "run"), save_strategy="no", **keys,
    )  # fmt: skip
    planned = plan_run(config, Console(quiet=True))
    result = train_dpo(config, console=Console(quiet=True))
    assert planned["plan"] == json.loads((result.folder / "plan.json").read_text())


def test_the_tokens_of_pairs_add_up_and_their_time_is_of_what_is_computed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rate counts a shared prompt once, and so must the tokens that it is applied to."""
    monkeypatch.setenv("DYNOTUNE_CACHE", str(folder / "cache"))
    rows = [{"prompt": " ".join(sentences(4, i)), "chosen": " yes", "rejected": " no"} for i in range(16)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = DPOConfig(
        model_name_or_path=str(folder / "model"), dataset_name=str(folder / "pairs.jsonl"), use_cpu=True,
        num_train_epochs=2, per_device_train_batch_size=8,
    )  # fmt: skip
    console = Console(record=True, width=300, file=io.StringIO())
    planned = plan_run(config, console, rate=100.0)
    tokens = planned["tokens"]
    assert tokens["saved_by_sharing"] > 0.4 * tokens["real"]
    assert tokens["label"] + tokens["masked"] == tokens["real"] + tokens["saved_by_sharing"]
    assert planned["time"]["seconds"] == pytest.approx(2 * tokens["real"] / 100)
    shares = {line.split()[0]: line for line in console.export_text().splitlines() if " of sequences " in line}
    assert sorted(shares) == ["label", "masked", "saved"]
    percent = {name: float(line.split("%")[0].split()[-1]) for name, line in shares.items()}
    assert percent["label"] + percent["masked"] == pytest.approx(100, abs=0.2)


def test_how_ranks_share_the_steps_is_shown(folder: Path) -> None:
    console = Console(record=True, width=300, file=io.StringIO())
    planned = plan_run(config_of(folder, gpus=4), console)["plan"]
    assert planned["examples_per_step"] == 4 * 8
    ranks = planned["layout"]["ranks"]
    assert ranks["world"] == 4
    assert 1 <= ranks["imbalance"]["mean"] <= ranks["imbalance"]["max"] < 1.5
    text = console.export_text()
    assert "over 4 ranks (8 a rank)" in text
    assert "4 ranks: in the mean of an epoch's steps the most loaded one costs" in text
    assert "ranks" not in plan_run(config_of(folder), Console(quiet=True))["plan"]["layout"]
    fixed = plan_run(config_of(folder, gpus=4, global_batch_size=64), console)["plan"]
    assert fixed["examples_per_step"] == 64


def test_updates_beside_trls(folder: Path) -> None:
    plain = plan_run(config_of(folder, max_length=96), Console(quiet=True))["updates"]
    packed = plan_run(config_of(folder, max_length=96, packing=True), Console(quiet=True))["updates"]
    assert plain["here"] == plain["trl"] == 12  # 90 rows, 8 a step
    assert packed["here"] == packed["trl"] == plain["trl_with_packing"] < 12
    assert packed["trl_without_packing"] == 12
    assert plan_run(config_of(folder, max_length=None), Console(quiet=True))["updates"]["trl_with_packing"] is None


def test_memory_is_that_of_the_largest_micro_batch(folder: Path) -> None:
    small = plan_run(config_of(folder, micro_batch_tokens=128), Console(quiet=True))["memory"]
    large = plan_run(config_of(folder, micro_batch_tokens=1024), Console(quiet=True))["memory"]
    by_name = [{part["name"]: part["bytes"] for part in one["parts"]} for one in (small, large)]
    assert by_name[0]["weights"] == by_name[1]["weights"]
    assert by_name[0]["activations"] < by_name[1]["activations"]


@pytest.mark.parametrize(("gib", "said"), [(1e-5, "more than the 0.00 GiB there are"), (80.0, "of 80.00 GiB")])
def test_a_step_that_does_not_fit_is_said(folder: Path, gib: float, said: str) -> None:
    console = Console(record=True, file=io.StringIO(), width=200)
    plan_run(config_of(folder, use_cpu=False, micro_batch_tokens=1024), console, memory_gib=gib)
    together = next(line for line in console.export_text().splitlines() if line.startswith("together"))
    assert together.rstrip().endswith(said)


def test_a_plan_for_a_gpu_that_is_not_here_says_so_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for on_cpu in (False, True):
        console = Console(record=True, file=io.StringIO(), width=200)
        plan_run(config_of(folder, use_cpu=on_cpu), console)
        text = console.export_text()
        assert ("`--use_cpu true` plans for this machine" in text.partition("execution:")[0]) == (not on_cpu)


def test_micro_batches_are_said_as_they_are(folder: Path) -> None:
    for tokens, said in ((100_000, "1 micro-batch a step, "), (128, " micro-batches a step (")):
        console = Console(record=True, file=io.StringIO(), width=200)
        plan_run(config_of(folder, micro_batch_tokens=tokens), console)
        layout = next(line for line in console.export_text().splitlines() if line.startswith("layout: "))
        assert said in layout
        assert layout.rstrip().endswith("over an epoch")


def test_a_model_whose_shapes_are_not_known_is_said(folder: Path) -> None:
    (folder / "model" / "config.json").write_text(json.dumps({"model_type": "unheard_of"}))
    found = plan_run(config_of(folder, tokenizer_name_or_path=str(folder / "model")), Console(quiet=True))
    assert found["memory"]["parts"] is None
    assert "unheard_of" in found["memory"]["unknown"]


def test_a_model_whose_forward_pass_looks_at_values_is_planned_without_its_memory(folder: Path) -> None:
    """GPT-2's does: a skeleton has none."""
    tiny_model("gpt2", n_positions=512).save_pretrained(folder / "model")
    found = plan_run(config_of(folder), Console(quiet=True))
    assert found["memory"]["parts"] is None
    assert "cannot be followed without weights" in found["memory"]["unknown"]


def test_from_the_command_line(folder: Path) -> None:
    words = [sys.executable, "-m", "dynotune", "plan", "--model_name_or_path", str(folder / "model"), "--dataset_name",
             str(folder / "data.jsonl"), "--use_cpu", "true", "--token_cache", "off"]  # fmt: skip
    done = subprocess.run([*words, "--json", "--rate", "1000"], capture_output=True, text=True, check=True)
    planned = json.loads(done.stdout)
    assert planned["time"]["seconds"] == pytest.approx(3 * planned["tokens"]["real"] / 1000)
    assert "documents lost: 0" in done.stderr
    refused = subprocess.run([*words, "--rate", "0"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "--rate" in refused.stderr


@pytest.mark.parametrize(
    "told", ["[]", "{}", '{"tokens_per_second": "fast"}', '{"tokens_per_second": NaN}', "[" * 100_000]
)
def test_a_summary_that_is_no_runs_gives_no_time(tmp_path: Path, told: str) -> None:
    config: Any = SFTConfig(output_dir=str(tmp_path))
    (tmp_path / "summary.json").write_text('{"tokens_per_second": 100}')
    assert _time(1000, config, None)["seconds"] == 10
    (tmp_path / "summary.json").write_text(told)
    assert _time(1000, config, None) == {"tokens_per_second": None, "seconds": None, "source": None}


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({}, "on the CPU no setting is chosen by memory"),
        ({"packed_execution": "off"}, "documents are computed one by one"),
    ],
    ids=str,
)
def test_a_curve_that_was_asked_for_and_is_not_there_is_explained_by_plan_and_run(
    folder: Path, keys: dict[str, Any], why: str
) -> None:
    """Control: who does not ask is told nothing."""
    config = config_of(folder, max_steps=1, overwrite_output_dir=True, **keys)

    def said(command: Any) -> str:
        console = Console(record=True, width=300)
        command(console)
        return console.export_text()

    assert f"there is no curve to show: {why}" in said(lambda console: plan_run(config, console, show_memory=True))
    assert "no curve" not in said(lambda console: plan_run(config, console))
    token = SHOW_MEMORY.set(True)
    try:
        assert f"there is no curve to show: {why}" in said(lambda console: train_sft(config, console=console))
    finally:
        SHOW_MEMORY.reset(token)
    assert "no curve" not in said(lambda console: train_sft(config, console=console))
