"""Promise: a whole run has the same metrics whether its reference is computed once or in its steps, and proves the same."""

import json
from pathlib import Path
from typing import Any

import pytest
from peft import LoraConfig
from rich.console import Console

from dynotune import DPOConfig, train_dpo
from dynotune.errors import DataError, TrainingError
from dynotune.train.dpo import prove_dpo
from dynotune.train.start import rehearse
from tests.tiny import sentences, tiny_model, tiny_tokenizer

FIGURES = ("loss", "grad_norm", "rewards/margins", "logps/rejected", "eval_loss", "eval_rewards/chosen")


@pytest.mark.parametrize("keys", [{"lora_target_modules": "all-linear"}, {"packed_execution": "off"}])
def test_once_and_in_steps(keys: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
    texts = sentences(90)
    rows = [
        {"prompt": f"{next(texts)}:", "chosen": f" {next(texts)}", "rejected": f" {next(texts)}"} for _ in range(16)
    ]
    found = {}
    for once in (True, False):
        config = DPOConfig(
            output_dir=str(tmp_path / f"run {once}"),
            precompute_ref_log_probs=once,
            use_peft=True,
            lora_r=4,
            per_device_train_batch_size=4,
            max_steps=4,
            logging_steps=1,
            save_strategy="no",
            eval_strategy="steps",
            eval_steps=4,
            learning_rate=1e-2,
            use_cpu=True,
            **keys,
        )
        run = train_dpo(
            config, model=tiny_model(), tokenizer=tiny_tokenizer(), train_dataset=rows, eval_dataset=rows[:5],
            console=Console(quiet=True),
        )  # fmt: skip
        metrics = [[row.get(name) for name in FIGURES] for row in run.metrics]
        proofs = json.loads((run.folder / "engagement.json").read_text())["rows"]
        found[once] = metrics, {one["name"]: (one["state"], one["seen"]) for one in proofs}
    assert found[True] == found[False]
    metrics, proofs = found[False]
    assert metrics[0][0] == pytest.approx(0.6931472, abs=1e-6)
    assert metrics[3][2] != 0  # the policy has moved
    if "packed_execution" not in keys:
        assert {proofs[name][0] for name in ("packed_execution", "fused_lora", "shared_prompt")} == {"engaged"}


def test_a_run_goes_on_against_the_reference_that_it_began_with_or_not_at_all(tmp_path: Path) -> None:
    texts = sentences(60)
    rows = [
        {"prompt": f"{next(texts)}:", "chosen": f" {next(texts)}", "rejected": f" {next(texts)}"} for _ in range(12)
    ]

    def run(model: Any, folder: str, steps: int, **keys: Any) -> Any:
        settings = {"per_device_train_batch_size": 2, "logging_steps": 1, "save_steps": 3, "learning_rate": 1e-2}
        settings |= {"lr_scheduler_type": "constant", "use_cpu": True, **keys}
        config = DPOConfig(output_dir=str(tmp_path / folder), max_steps=steps, **settings)
        return train_dpo(
            config, model=model, tokenizer=tiny_tokenizer(), train_dataset=rows, console=Console(quiet=True)
        )

    whole = run(tiny_model(), "whole", 6).metrics
    trained = tiny_model()
    begun = run(trained, "run", 3).metrics
    with pytest.raises(TrainingError, match="the weights here are others"):
        run(trained, "run", 6, resume_from_checkpoint=True)  # the same object, which has moved
    rest = run(tiny_model(), "run", 6, resume_from_checkpoint=True).metrics
    assert [row["loss"] for row in begun + rest] == [row["loss"] for row in whole]
    assert whole[5]["rewards/margins"] != 0


def test_the_loss_of_a_proof_is_that_of_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
    texts = sentences(40)
    rows = [{"prompt": f"{next(texts)}:", "chosen": f" {next(texts)}", "rejected": f" {next(texts)}"} for _ in range(8)]
    for row in rows[
        5:
    ]:  # so that a second micro-batch is run, whose tokens have more keys, of another step than the first
        row["prompt"] = rows[4]["prompt"]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tiny_model().save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    config = DPOConfig(
        model_name_or_path=str(tmp_path / "model"),
        dataset_name=str(tmp_path / "pairs.jsonl"),
        output_dir=str(tmp_path / "run"),
        per_device_train_batch_size=4,
        train_sampling_strategy="sequential",
        use_cpu=True,
    )
    run: list[list[int]] = []
    once = rehearse.run_once
    monkeypatch.setattr(
        rehearse, "run_once", lambda of, batch, n: (run.append(batch.rows.tolist()), once(of, batch, n))[1]
    )
    figures = prove_dpo(config, Console(quiet=True))
    assert figures["loss"] == pytest.approx(0.6931472, abs=1e-3)
    assert figures["pairs"] == len(run[0])
    assert run[1:] == [[4, 5, 6, 7]]


def test_held_out_pairs_that_are_all_left_out_are_not_called_training(tmp_path: Path) -> None:
    rows = [{"prompt": "one two", "chosen": f" {word}", "rejected": " three"} for word in ("four", "five")]
    config = DPOConfig(output_dir=str(tmp_path / "run"), use_cpu=True, on_bad_row="skip", max_steps=1)
    same = [{**rows[0], "rejected": rows[0]["chosen"]}]
    with pytest.raises(DataError, match="eval") as raised:
        train_dpo(
            config, model=tiny_model(), tokenizer=tiny_tokenizer(), train_dataset=rows, eval_dataset=same,
            console=Console(quiet=True),
        )  # fmt: skip
    assert "train" not in str(raised.value).splitlines()[0]


def test_a_new_adapter_in_a_callers_model_is_no_part_of_the_reference(tmp_path: Path) -> None:
    """PEFT marks the model that it wraps, which must not pass for an adapter that came with it: one that does not begin at
    zero would be its own reference, which it is neither in TRL nor where the model is read from a folder."""
    rows = [
        {"prompt": "2 + 2:", "chosen": " 4", "rejected": " 5"},
        {"prompt": "3 + 3:", "chosen": " 6", "rejected": " 7"},
    ]
    folder = tmp_path / "model"
    tiny_model().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    adapter = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
    for number, source in enumerate(({"model": tiny_model(), "tokenizer": tiny_tokenizer()}, {})):
        named = {} if source else {"model_name_or_path": str(folder)}
        config = DPOConfig(output_dir=str(tmp_path / str(number)), use_cpu=True, max_steps=1, **named)
        with pytest.raises(TrainingError, match="does not begin at zero"):
            train_dpo(config, train_dataset=rows, peft_config=adapter, console=Console(quiet=True), **source)
