"""One arm, in this process: trains a row's steps and says what they took.

    python -m benchmarks.peers.arm --row packed-16k --arm "trl default" --shared SHARED

Prints one line that begins with RESULT. `benchmarks.peers` starts it, a process for each arm. A rehearsal (`--dry`) takes a
tiny model, two steps and small batches: what it prints is no measurement.

transformers is imported by functions alone, since Unsloth changes it, and TRL, when it is imported itself.
"""

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.peers.rows import ROWS, Row, who
from benchmarks.peers.work import (
    TARGETS,
    adapter,
    common,
    examples_per_step,
    model_of,
    rows_of,
    same_start,
    tokenizer_of,
)

DRY = {"max_length": 256, "per_device_train_batch_size": 2}
ON_CPU = {"bf16": False, "use_cpu": True}
MARK = "RESULT "


def rehearsed(row: Row) -> Row:
    """The row on a tiny model with two steps, one of them a warm-up. LoRA stays LoRA."""
    return replace(row, content={**row.content, **DRY}, window=1, windows=1, warm_up=1)


def measure(row: Row, arm: str, shared: Path | None, dry: bool = False) -> dict[str, Any]:
    """All figures of one arm. Raises what the trainer raises."""
    if who(arm) == "unsloth":
        import unsloth  # noqa: F401 - before transformers, TRL and PEFT, which it changes
    settings, small = dict(row.arms[arm].settings), {}
    row = rehearsed(row) if dry else row
    weights = settings.pop("weights", "bfloat16")
    if dry:
        small = ON_CPU
        weights = "float32"
        settings = {key: value for key, value in settings.items() if key not in {*DRY, "gradient_accumulation_steps"}}
    attention = settings.pop("attn", "sdpa")
    settings = {**common(row), **settings, **small}
    tokenizer = tokenizer_of(row, shared)
    rows = rows_of(row, shared, tokenizer)
    model = model_of("dry" if dry else row.shape, attention, weights)
    train = {"dynotune": by_dynotune, "trl": by_trl, "unsloth": _unsloth}[who(arm)]
    with tempfile.TemporaryDirectory() as folder:
        result = train(row, settings, model, rows, tokenizer, f"{folder}/run")
    return {**figures(row, result), **result}


def by_dynotune(
    row: Row, settings: dict[str, Any], model: Any, rows: list[Any], tokenizer: Any, folder: str, *callbacks: Any
) -> dict[str, Any]:
    from benchmarks.peers.clocks import StepClock
    from dynotune import DPOConfig, SFTConfig, train_dpo, train_sft

    began, clock = time.perf_counter(), StepClock()
    more: dict[str, Any] = {"on_bad_row": "skip"} if row.pairs else {}
    config, train = (DPOConfig, train_dpo) if row.pairs else (SFTConfig, train_sft)
    result = train(  # type: ignore[operator]
        config(**settings, **more, output_dir=folder),
        model=model,
        tokenizer=tokenizer,
        train_dataset=rows,
        peft_config=adapter() if row.lora else None,
        callbacks=[same_start(), clock, *callbacks],
    )
    logged = [one for one in result.metrics if "loss" in one]
    before = [0, *(one["num_tokens"] for one in logged)]
    run = result.folder
    return {
        "seconds": [one["seconds_per_step"] * row.window for one in logged],
        **({} if row.pairs else {"tokens": [b["num_tokens"] - a for a, b in zip(before, logged, strict=False)]}),
        "losses": [one["loss"] for one in logged],
        "grad_norms": [one["grad_norm"] for one in logged],
        "peak_gib": logged[-1].get("peak_memory_gib", 0.0),
        **clock.read(),
        "all_seconds": time.perf_counter() - began,
        "figures": logged[-1],
        "summary": result.summary,
        "plan": json.loads((run / "plan.json").read_text()),
        "said": json.loads((run / "environment.json").read_text())["execution"],
        "engagement": json.loads((run / "engagement.json").read_text()),
    }


def _unsloth(
    row: Row, settings: dict[str, Any], model: Any, rows: list[Any], tokenizer: Any, folder: str
) -> dict[str, Any]:
    """Unsloth's model under the SFT trainer of TRL as Unsloth has changed it, without its checkpointing.

    Written by its public functions and rehearsed with a stand-in: we have not run it. It does not take every TRL (2026.10
    none above 1.15), so all arms of a row are to be measured in an environment that it takes. Which attention it uses, and
    whether rows are padded, is its own choice.
    """
    import torch
    from unsloth import FastLanguageModel

    assert row.lora, row.holds
    assert not row.pairs, row.holds
    whole, length, lora = f"{folder}-model", settings["max_length"], adapter()
    model.save_pretrained(whole)  # it loads folders only
    tokenizer.save_pretrained(whole)
    weights = model.dtype
    model.to("meta")  # the caller holds it: two models would not be what a user of Unsloth has in memory
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    loaded, _ = FastLanguageModel.from_pretrained(
        model_name=whole,
        max_seq_length=length,
        dtype=weights,
        load_in_4bit=False,
        use_exact_model_name=True,
        use_gradient_checkpointing=False,
    )
    adapted = FastLanguageModel.get_peft_model(
        loaded,
        r=lora.r,
        lora_alpha=lora.lora_alpha,
        lora_dropout=lora.lora_dropout,
        target_modules=TARGETS,
        bias="none",
        max_seq_length=length,
        use_gradient_checkpointing=False,
    )
    return _by_trl(row, settings, adapted, rows, tokenizer, folder, None)


def by_trl(
    row: Row, settings: dict[str, Any], model: Any, rows: list[Any], tokenizer: Any, folder: str
) -> dict[str, Any]:
    return _by_trl(row, settings, model, rows, tokenizer, folder, adapter() if row.lora else None)


def _by_trl(
    row: Row, settings: dict[str, Any], model: Any, rows: list[Any], tokenizer: Any, folder: str, lora: Any
) -> dict[str, Any]:
    """lora: what the trainer is to put on the model; None: nothing."""
    import torch
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

    from benchmarks.peers.clocks import StepClock, WindowClock

    began, windows, clock = time.perf_counter(), WindowClock(row.window), StepClock()
    config, trainer_of = (DPOConfig, DPOTrainer) if row.pairs else (SFTConfig, SFTTrainer)
    trainer = trainer_of(
        model=model,
        args=config(**settings, output_dir=folder),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=lora,
        callbacks=[same_start(), windows, clock],
    )
    set_up = time.perf_counter() - began
    counts = {}
    if not row.pairs:
        # Real tokens: those of the examples that the steps take, in their order, before any padding.
        a_window = examples_per_step(settings) * row.window
        taken = trainer.train_dataset[: examples_per_step(settings) * row.steps]["input_ids"]
        lengths = [len(ids) for ids in taken]
        counts = {"tokens": [sum(lengths[i : i + a_window]) for i in range(0, len(lengths), a_window)]}
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    trainer.train()
    logged = [one for one in trainer.state.log_history if "loss" in one]
    return {
        "seconds": windows.seconds,
        **counts,
        "losses": [one["loss"] for one in logged],
        "grad_norms": [one["grad_norm"] for one in logged],
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0,
        **clock.read(),
        **({"set_up_seconds": set_up} if row.pairs else {}),
        "all_seconds": time.perf_counter() - began,
    }


def figures(row: Row, result: dict[str, Any]) -> dict[str, Any]:
    """Over the counted windows: milliseconds a step with their range, real tokens or pairs a second."""
    from dynotune.measure.words import DEFINITIONS

    expected = row.warm_up + row.windows
    assert len(result["seconds"]) == expected, f"{len(result['seconds'])} windows, {expected} were to be measured"
    seconds = result["seconds"][row.warm_up :]
    steps = [1e3 * s / row.window for s in seconds]
    found = {
        "definitions": DEFINITIONS,
        "ms_per_step": statistics.mean(steps),
        "ms_per_step_min_max": [min(steps), max(steps)],
        "first_window_s": result["seconds"][0],
    }
    if row.pairs:
        pairs = examples_per_step(common(row)) * row.window * row.windows
        return {**found, "pairs_per_second": pairs / sum(seconds)}
    tokens = result["tokens"][row.warm_up :]
    return {
        **found,
        "real_tokens_per_step": sum(tokens) / len(tokens) / row.window,
        "real_tokens_per_second": sum(tokens) / sum(seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", choices=ROWS, required=True)
    parser.add_argument("--arm", required=True)
    parser.add_argument("--shared", type=Path)
    parser.add_argument("--dry", action="store_true")
    args = parser.parse_args()
    print(MARK + json.dumps(measure(ROWS[args.row], args.arm, args.shared, args.dry)), flush=True)


if __name__ == "__main__":
    main()
