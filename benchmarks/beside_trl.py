"""Training steps on a GPU beside TRL's best settings, on the same rows in the same order, from the same weights.

    python -m benchmarks.beside_trl --shared SHARED --out results.json [--works packed-16k,2-documents,16-documents,sft-mix]

The Qwen2.5-7B shape with random weights, LoRA r=32 on all linears. Each arm runs in a process of its own; both sides get the
same PeftModel. Time is wall time over windows of steps behind the warm-up, with clipping and logging on; tokens are real.
TRL's `flash_attention_2` needs a package without a wheel: `--flash-attn FOLDER` puts a stand-in that calls the
FlashAttention-2 inside PyTorch on the path.
"""

import argparse
import gzip
import json
import math
import random
import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.arms import StepClock, WindowClock, arguments, hand_back, head, run_all

QWEN_7B = {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
}
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclass(frozen=True)
class Work:
    """What a step holds, how many are measured, and the settings that TRL is measured under."""

    rows: str
    settings: dict[str, Any]
    window: int
    windows: int
    trl: dict[str, dict[str, Any]]
    ours: dict[str, dict[str, Any]] = field(default_factory=lambda: {"packed": {}})


FA2 = {"attn": "flash_attention_2"}
WORKS = {
    "packed-16k": Work(
        "probe",
        {"packing": True, "max_length": 2048, "per_device_train_batch_size": 8},
        window=4,
        windows=3,
        trl={"fa2 + Liger, 8 x 2048": {**FA2, "use_liger_kernel": True}},
    ),
    "2-documents": Work(
        "probe",
        {"max_length": 2048, "per_device_train_batch_size": 2},
        window=10,
        windows=4,
        trl={
            "fa2": FA2,
            "fa2 + Liger, padding-free": {**FA2, "use_liger_kernel": True, "padding_free": True, "max_length": None},
        },
    ),
    "16-documents": Work(
        "probe",
        {"max_length": 2048, "per_device_train_batch_size": 16},
        window=10,
        windows=3,
        trl={
            "fa2 + Liger, padding-free": {**FA2, "use_liger_kernel": True, "padding_free": True, "max_length": None},
        },
    ),
    "sft-mix": Work(
        "sft_mix",
        {"max_length": 12288, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 8},
        window=2,
        windows=3,
        trl={
            "fa2 + Liger, 8 x 8 padding-free": {
                **FA2, "use_liger_kernel": True, "padding_free": True, "max_length": None,
            },
            "fa2 + Liger, 64 padding-free": {
                **FA2, "use_liger_kernel": True, "padding_free": True, "max_length": None,
                "per_device_train_batch_size": 64, "gradient_accumulation_steps": 1,
            },
        },
    ),
}  # fmt: skip
WARM_UP = 1
"""Windows that are not counted: the first compiles kernels and fills the allocator."""


def common(work: Work) -> dict[str, Any]:
    return {
        **work.settings,
        "max_steps": work.window * (WARM_UP + work.windows),
        "logging_steps": work.window,
        "learning_rate": 1e-5,
        "max_grad_norm": 1.0,
        "save_strategy": "no",
        "train_sampling_strategy": "sequential",
        "report_to": "none",
        "seed": 17,
        "bf16": True,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
    }


def rows_of(work: Work, shared: Path, tokenizer: Any) -> list[dict[str, Any]]:
    """`probe`: random documents of lognormal length, median 105. `sft_mix`: conversations of at most 4,096 tokens."""
    examples = common(work)["max_steps"] * 64
    if work.rows == "sft_mix":
        rows = []
        with gzip.open(shared / "data" / "sft" / "sft_mix.jsonl.gz", "rt", encoding="utf-8") as source:
            for line in source:
                row = json.loads(line)
                # Qwen's template would drop tools in one of the two trainers and not in the other.
                if row["n_tokens"] > 4096 or "tools" in row or any("tool_calls" in m for m in row["messages"]):
                    continue
                ids = tokenizer.apply_chat_template(row["messages"], return_dict=True)["input_ids"]
                rows.append({"input_ids": ids})
                if len(rows) == examples:
                    return rows
        raise SystemExit("the data set has too few rows")
    draw = random.Random(0)
    lengths = [int(min(2000, max(8, draw.lognormvariate(math.log(105), 0.7)))) for _ in range(4000)]
    return [{"input_ids": [draw.randrange(5000) for _ in range(n)]} for n in lengths]


def the_model(attention: str) -> Any:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, Qwen2Config

    torch.manual_seed(17)
    with torch.device("cuda"):
        base = AutoModelForCausalLM.from_config(
            Qwen2Config(**QWEN_7B), dtype=torch.bfloat16, attn_implementation=attention
        )
    lora = LoraConfig(r=32, lora_alpha=64, lora_dropout=0.0, target_modules=TARGETS, task_type="CAUSAL_LM")
    return get_peft_model(base, lora)


def arm_dynotune(work: Work, more: dict[str, Any], rows: list[Any], tokenizer: Any, folder: str) -> dict[str, Any]:
    from dynotune import SFTConfig, train_sft

    clock = StepClock()
    result = train_sft(
        SFTConfig(**{**common(work), "output_dir": f"{folder}/run", **more}),
        model=the_model("sdpa"),
        tokenizer=tokenizer,
        train_dataset=rows,
        callbacks=[clock],
    )
    logged = [row for row in result.metrics if "loss" in row]
    before = [0, *(row["num_tokens"] for row in logged)]
    return {
        "seconds": [row["seconds_per_step"] * work.window for row in logged],
        "tokens": [row["num_tokens"] - start for row, start in zip(logged, before, strict=False)],
        "losses": [row["loss"] for row in logged],
        "grad_norms": [row["grad_norm"] for row in logged],
        "peak_gib": logged[-1]["peak_memory_gib"],
        **clock.read(),
        "figures": logged[-1],
        "summary": result.summary,
        "plan": json.loads((result.folder / "plan.json").read_text()),
    }


def arm_trl(work: Work, more: dict[str, Any], rows: list[Any], tokenizer: Any, folder: str) -> dict[str, Any]:
    import torch
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    attention = more.pop("attn")
    settings = {**common(work), **more}
    windows, clock = WindowClock(work.window), StepClock()
    trainer = SFTTrainer(
        model=the_model(attention),
        args=SFTConfig(output_dir=f"{folder}/trl", **settings),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[windows, clock],
    )
    a_window = settings["per_device_train_batch_size"] * settings.get("gradient_accumulation_steps", 1) * work.window
    lengths = [len(ids) for ids in trainer.train_dataset[: a_window * (WARM_UP + work.windows)]["input_ids"]]
    torch.cuda.reset_peak_memory_stats()
    trainer.train()
    logged = [row for row in trainer.state.log_history if "loss" in row]
    return {
        "seconds": windows.seconds,
        "tokens": [sum(lengths[i : i + a_window]) for i in range(0, len(lengths), a_window)],
        "losses": [row["loss"] for row in logged],
        "grad_norms": [row["grad_norm"] for row in logged],
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
        **clock.read(),
    }


def figures(arm: dict[str, Any], window: int) -> dict[str, Any]:
    """Over the counted windows: milliseconds a step with their range, real tokens a second."""
    from dynotune.measure.words import DEFINITIONS

    seconds, tokens = arm["seconds"][WARM_UP:], arm["tokens"][WARM_UP:]
    steps = [1e3 * s / window for s in seconds]
    return {
        "definitions": DEFINITIONS,
        "ms_per_step": statistics.mean(steps),
        "ms_per_step_min_max": [min(steps), max(steps)],
        "real_tokens_per_step": sum(tokens) / len(tokens) / window,
        "real_tokens_per_second": sum(tokens) / sum(seconds),
        "first_window_s": arm["seconds"][0],
    }


def arms_of(name: str) -> dict[str, dict[str, Any]]:
    """Ours and TRL's, by names that say whose they are."""
    work = WORKS[name]
    ours = {f"dynotune:{arm}": settings for arm, settings in work.ours.items()}
    return ours | {f"trl:{arm}": settings for arm, settings in work.trl.items()}


def run_arm(args: argparse.Namespace) -> None:
    from transformers import AutoTokenizer

    work, settings = WORKS[args.work], dict(arms_of(args.work)[args.arm])
    tokenizer = AutoTokenizer.from_pretrained(args.shared / "tokenizers" / "qwen-152k")
    rows = rows_of(work, args.shared, tokenizer)
    arm = arm_dynotune if args.arm.startswith("dynotune") else arm_trl
    with tempfile.TemporaryDirectory() as folder:
        result = arm(work, settings, rows, tokenizer, folder)
    hand_back({**figures(result, work.window), **result})


def main() -> None:
    args = arguments(__doc__, WORKS, "beside_trl.json").parse_args()
    if args.arm:
        run_arm(args)
        return
    from dynotune.measure.words import same_definitions

    out = head(args, "benchmarks.beside_trl")
    out["settings"] = {name: common(WORKS[name]) for name in args.works.split(",")}
    run_all(args, "benchmarks.beside_trl", out, arms_of)
    for measured in out["works"].values():
        if figured := {arm: r for arm, r in measured["arms"].items() if "failed" not in r}:
            same_definitions(figured)
    print(f"{'work':14} {'arm':42} {'ms/step':>9} {'real tok/s':>11} {'GiB':>6}")
    for work, measured in out["works"].items():
        for arm, r in measured["arms"].items():
            if "failed" in r:
                print(f"{work:14} {arm:42} failed")
                continue
            rates = f"{r['ms_per_step']:9.1f} {r['real_tokens_per_second']:11,.0f} {r['peak_gib']:6.1f}"
            print(f"{work:14} {arm:42} {rates}")


if __name__ == "__main__":
    main()
