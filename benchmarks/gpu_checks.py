"""Checks of the loop that only a GPU can fail: no host sync in the step, masking on the device, resume, precision.

    python benchmarks/gpu_checks.py --out gpu_checks.json

Each check says what it saw; the exit code is 1 if one fails. The model is small and random, the code is the real path.
"""

import argparse
import json
import math
import platform
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from transformers import TrainerCallback

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.tiny import chats, tiny_model, tiny_tokenizer

from dynotune import SFTConfig, train_sft

SHAPE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "head_dim": 64}


def run(folder: Path, *, model: Any = None, callbacks: Any = (), **settings: Any) -> Any:
    config = {
        "output_dir": str(folder), "per_device_train_batch_size": 4, "max_steps": 12, "logging_steps": 3,
        "save_strategy": "no", "learning_rate": 1e-3, **settings,
    }  # fmt: skip
    return train_sft(
        SFTConfig(**config), model=model or tiny_model("qwen2", **SHAPE), tokenizer=tiny_tokenizer(),
        train_dataset=chats(48), callbacks=callbacks, console=Console(quiet=True),
    )  # fmt: skip


class SyncWatch(TrainerCallback):
    """From step 4 on, records every operation that makes the host wait for the device, with its place."""

    def __init__(self) -> None:
        self.places: Counter[str] = Counter()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 4:
            torch.cuda.set_sync_debug_mode("warn")
            warnings.showwarning = self.note
            warnings.simplefilter("always")

    def on_train_end(self, *_: Any, **__: Any) -> None:
        torch.cuda.set_sync_debug_mode("default")

    def note(self, message: Any, *_: Any, **__: Any) -> None:
        if "synchronizing" in str(message):
            stack = traceback.extract_stack()[:-1]
            own = [
                f for f in stack if "dynotune" in f.filename or "transformers" in f.filename or "torch" in f.filename
            ]
            last = own[-1] if own else stack[-1]
            self.places[f"{Path(last.filename).name}:{last.lineno} {last.line}"] += 1


def check_no_host_sync(folder: Path, **settings: Any) -> dict[str, Any]:
    """The watch ends at the last step, before the final flush, which waits on purpose."""
    watch = SyncWatch()
    run(folder, callbacks=[watch], **settings)
    return {"ok": not watch.places, "places": dict(watch.places)}


def check_watch_can_fail(folder: Path) -> dict[str, Any]:
    """Negative control: an optimizer without a fused kernel waits once a step, and the watch must see it."""
    watch = SyncWatch()
    run(folder, callbacks=[watch], optim="rmsprop")
    return {"ok": sum(watch.places.values()) >= 8, "places": dict(watch.places)}


def check_masking(folder: Path, **settings: Any) -> dict[str, Any]:
    """A NaN in one forward pass changes no weight, and the run goes on."""
    model = tiny_model("qwen2", **SHAPE)
    seen: dict[int, list[torch.Tensor]] = {}
    step = 0

    def poison(module: Any, args: Any, output: Any) -> Any:
        return output * math.nan if step == 5 else output

    model.model.norm.register_forward_hook(poison)

    class Keep(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            nonlocal step
            step = state.global_step + 1

        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            seen[state.global_step] = [p.detach().clone() for p in model.parameters() if p.requires_grad]

    result = run(folder, model=model, callbacks=[Keep()], on_nonfinite_step="skip", **settings)
    unchanged = all(torch.equal(a, b) for a, b in zip(seen[4], seen[5], strict=True))
    changed = not all(torch.equal(a, b) for a, b in zip(seen[5], seen[6], strict=True))
    return {
        "ok": unchanged and changed and result.summary["skipped_steps"] == [5],
        "unchanged_by_nan": unchanged, "goes_on": changed, "skipped": result.summary["skipped_steps"],
    }  # fmt: skip


def check_resume(folder: Path, **settings: Any) -> dict[str, Any]:
    """12 steps against 6, save, load, 6."""
    settings = {"logging_steps": 1, "full_determinism": True, **settings}
    whole = run(folder / "whole", **settings)
    run(folder / "cut", save_strategy="steps", save_steps=6, **{**settings, "max_steps": 12})
    rest = run(folder / "cut", resume_from_checkpoint=str(folder / "cut" / "checkpoints" / "step-6"), **settings)
    torch.use_deterministic_algorithms(False)
    a = {r["step"]: r["loss"] for r in whole.metrics}
    b = {r["step"]: r["loss"] for r in rest.metrics}
    gap = max(abs(a[s] - b[s]) / a[s] for s in b)
    return {"ok": sorted(b) == list(range(7, 13)) and gap < 1e-6, "largest_relative_gap": gap, "bitwise": gap == 0.0}


def check_precision(folder: Path, use_peft: bool) -> dict[str, Any]:
    """Masters and adapters are fp32, the LoRA base bf16, and bf16 compute tracks fp32 within bf16's own error."""
    more: dict[str, Any] = (
        {"use_peft": True, "lora_target_modules": "all-linear", "lora_dropout": 0.0} if use_peft else {}
    )
    (folder / "m").mkdir(parents=True)
    tiny_model("qwen2", **SHAPE).save_pretrained(folder / "m")
    tiny_tokenizer().save_pretrained(folder / "m")

    def go(name: str, **settings: Any) -> Any:
        return train_sft(
            SFTConfig(
                model_name_or_path=str(folder / "m"), output_dir=str(folder / name), per_device_train_batch_size=4,
                max_steps=12, logging_steps=1, save_strategy="no", learning_rate=1e-3, **more, **settings,
            ),
            train_dataset=chats(48), console=Console(quiet=True),
        )  # fmt: skip

    mixed, exact = go("bf16"), go("fp32", bf16=False, dtype="float32")
    kinds = {str(p.dtype) for p in mixed.model.parameters() if p.requires_grad}
    base = {str(p.dtype) for p in mixed.model.parameters() if not p.requires_grad}
    gap = max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(mixed.metrics, exact.metrics, strict=True))
    ok = kinds == {"torch.float32"} and base == ({"torch.bfloat16"} if use_peft else set()) and gap < 2e-2
    return {"ok": ok, "trainable": sorted(kinds), "frozen": sorted(base), "largest_relative_loss_gap": gap}


def check_generation(folder: Path) -> dict[str, Any]:
    """Evaluation and sampled generations run on the device."""
    result = train_sft(
        SFTConfig(
            output_dir=str(folder), max_steps=4, per_device_train_batch_size=4, save_strategy="no", eval_strategy="steps",
            eval_steps=2, eval_samples=2, eval_sample_max_new_tokens=8, assistant_only_loss=True,
        ),
        model=tiny_model("qwen2", **SHAPE), tokenizer=tiny_tokenizer(), train_dataset=chats(16),
        eval_dataset=chats(4, 3), console=Console(quiet=True),
    )  # fmt: skip
    samples = (result.folder / "samples.jsonl").read_text().splitlines()
    losses = [r["eval_loss"] for r in result.metrics if "eval_loss" in r]
    return {"ok": len(samples) == 4 and len(losses) == 2 and all(map(math.isfinite, losses)), "eval_losses": losses}


LORA = {"use_peft": True, "lora_target_modules": "all-linear"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="gpu_checks.json")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    import importlib.metadata as metadata

    checks: dict[str, Any] = {
        "no host sync, full": lambda d: check_no_host_sync(d),
        "no host sync, LoRA": lambda d: check_no_host_sync(d, **LORA),
        "no host sync, gradient checkpointing": lambda d: check_no_host_sync(d, gradient_checkpointing=True, **LORA),
        "the sync watch can fail": check_watch_can_fail,
        "a NaN is masked, full": lambda d: check_masking(d),
        "a NaN is masked, LoRA": lambda d: check_masking(d, **LORA),
        "resume, full": lambda d: check_resume(d),
        "resume, LoRA": lambda d: check_resume(d, **LORA),
        "precision, full": lambda d: check_precision(d, use_peft=False),
        "precision, LoRA": lambda d: check_precision(d, use_peft=True),
        "evaluation and generation": check_generation,
    }
    results = {}
    for name, check in checks.items():
        with tempfile.TemporaryDirectory() as folder:
            try:
                results[name] = check(Path(folder))
            except Exception:  # noqa: BLE001  (one broken check must not hide the others)
                results[name] = {"ok": False, "error": traceback.format_exc()[-1500:]}
        print(
            "ok  " if results[name]["ok"] else "FAIL",
            name,
            {k: v for k, v in results[name].items() if k != "ok"},
            flush=True,
        )
    out = {
        "command": " ".join(["python", *sys.argv]), "commit": args.commit, "hardware": torch.cuda.get_device_name(),
        "versions": {p: metadata.version(p) for p in ("torch", "transformers", "peft")}
        | {"python": platform.python_version()},
        "checks": results,
    }  # fmt: skip
    Path(args.out).write_text(json.dumps(out, indent=1))
    return 0 if all(r["ok"] for r in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
