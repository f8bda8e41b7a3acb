"""Promise: Unsloth's arm is listed, skipped with its reason, and trains the same model as the others: shown with a stand-in
of its public functions, since the package needs a GPU. What it does to speed is shown nowhere here.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.peers import __main__ as peers
from benchmarks.peers import arm as arms
from benchmarks.peers.rows import ROWS
from benchmarks.peers.work import TARGETS, model_of, tokenizer_of

ROW = "packed-8k"

STAND_IN = """
import json, os, sys
late = [name for name in ("transformers", "trl", "peft") if name in sys.modules]
assert not late, f"{late} imported before unsloth"
assert os.environ["UNSLOTH_DISABLE_STATISTICS"] == "1"

class FastLanguageModel:
    @staticmethod
    def from_pretrained(model_name, dtype, **more):
        from transformers import AutoModelForCausalLM, AutoTokenizer
        model = AutoModelForCausalLM.from_pretrained(model_name, dtype=dtype, attn_implementation="sdpa")
        return model, AutoTokenizer.from_pretrained(model_name)

    @staticmethod
    def get_peft_model(model, r, lora_alpha, lora_dropout, target_modules, bias, **more):
        from peft import LoraConfig, get_peft_model
        return get_peft_model(model, LoraConfig(
            r=r, lora_alpha=lora_alpha + int(os.environ.get("OFF_BY", 0)), lora_dropout=lora_dropout,
            target_modules=target_modules, bias=bias, task_type="CAUSAL_LM"))
"""


def test_packed_and_document_rows_of_the_7b_have_the_arm() -> None:
    """And no other: it is written for SFT of that model under LoRA."""
    have = {name for name, row in ROWS.items() if "unsloth" in row.arms}
    assert have == {"packed-8k", "packed-16k", "2-documents", "16-documents", "2-of-129", "16-of-129"}
    for name in have:
        assert ROWS[name].lora
        assert not ROWS[name].pairs
        assert ROWS[name].arms["unsloth"].settings["gradient_checkpointing"] is False


@pytest.mark.skipif(importlib.util.find_spec("unsloth") is not None, reason="Unsloth is installed")
def test_it_is_skipped_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Control: the arm beside it runs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(
        peers, "run_arm", lambda *_: {"ms_per_step": 1.0, "real_tokens_per_second": 2.0, "peak_gib": 3.0}
    )
    said = {}
    for arm in ("unsloth", "trl default"):
        assert peers.main(["--row", ROW, "--only", arm, "--dry", "--commit", "c", "--out", str(tmp_path)]) == 0
        said[arm] = capsys.readouterr().out
    assert "skipped: unsloth is not installed" in said["unsloth"]
    assert "skipped" not in said["trl default"]


def test_what_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same weights from a folder, the row's adapter, no checkpointing, no four bits; the first model is let go of."""
    asked: dict[str, Any] = {}

    class FastLanguageModel:
        @staticmethod
        def from_pretrained(**settings: Any) -> tuple[Any, Any]:
            from transformers import AutoModelForCausalLM

            asked["loaded"] = settings
            asked["weights"] = AutoModelForCausalLM.from_pretrained(settings["model_name"], dtype=settings["dtype"])
            return "loaded", "tokenizer"

        @staticmethod
        def get_peft_model(model: Any, **settings: Any) -> Any:
            asked["adapted"] = (model, settings)
            return "adapted"

    stand_in = type(sys)("unsloth")
    stand_in.FastLanguageModel = FastLanguageModel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "unsloth", stand_in)
    monkeypatch.setattr(
        arms, "_by_trl", lambda row, settings, model, rows, tokenizer, folder, lora: {"of": (model, lora)}
    )
    row = arms.rehearsed(ROWS[ROW])
    model, expected = (model_of("dry", "sdpa", "bfloat16") for _ in range(2))
    result = arms._unsloth(row, {"max_length": 256}, model, [], tokenizer_of(row, None), str(tmp_path / "run"))
    assert result == {"of": ("adapted", None)}
    loaded = asked["loaded"]
    assert (loaded["max_seq_length"], loaded["dtype"]) == (256, torch.bfloat16)
    assert (loaded["load_in_4bit"], loaded["use_gradient_checkpointing"]) == (False, False)
    for (name, ours), theirs in zip(expected.named_parameters(), asked["weights"].parameters(), strict=True):
        assert torch.equal(ours, theirs), name
    assert {p.device.type for p in model.parameters()} == {"meta"}
    of, settings = asked["adapted"]
    assert of == "loaded"
    assert (settings["r"], settings["lora_alpha"], settings["lora_dropout"]) == (32, 64, 0.0)
    assert (settings["target_modules"], settings["use_gradient_checkpointing"]) == (TARGETS, False)


@pytest.mark.long
@pytest.mark.skipif(torch.cuda.is_available(), reason="a rehearsal goes without a GPU")
def test_it_is_imported_first_and_learns_what_trl_does(tmp_path: Path) -> None:
    """Processes of their own, with TRL as installed. Control: an adapter that is scaled otherwise learns something else."""
    package = tmp_path / "unsloth"
    package.mkdir()
    (package / "__init__.py").write_text(STAND_IN)

    def learned(arm: str, **more: str) -> list[float]:
        env = {**os.environ, "UNSLOTH_DISABLE_STATISTICS": "1", "HF_HUB_OFFLINE": "1", **more}
        env["PYTHONPATH"] = ":".join(map(str, (tmp_path, peers.ROOT / "src", peers.ROOT)))
        command = [sys.executable, "-m", "benchmarks.peers.arm", "--row", ROW, "--arm", arm, "--dry"]
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        result = peers.result_of(done.stdout)
        assert result is not None, done.stderr[-2000:]
        return [*result["losses"], *result["grad_norms"]]

    theirs = learned("trl default")
    assert learned("unsloth") == pytest.approx(theirs, rel=1e-5)
    assert learned("unsloth", OFF_BY="64") != pytest.approx(theirs, rel=1e-2)
