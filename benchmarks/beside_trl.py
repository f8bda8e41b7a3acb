"""Training steps on a GPU beside TRL's best settings, on the same rows in the same order, from the same weights.

    python benchmarks/beside_trl.py --shared SHARED --out results.json [--works packed-16k,2-documents,16-documents,sft-mix]

The Qwen2.5-7B shape with random weights, LoRA r=32 on all linears. Each arm runs in a process of its own; both sides get the
same PeftModel. Time is wall time over windows of steps behind the warm-up, with clipping and logging on; tokens are real.
TRL's `flash_attention_2` needs a package without a wheel: `--flash-attn FOLDER` puts a stand-in that calls the
FlashAttention-2 inside PyTorch on the path.
"""

import argparse
import gzip
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

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

    result = train_sft(
        SFTConfig(**{**common(work), "output_dir": f"{folder}/run", **more}),
        model=the_model("sdpa"),
        tokenizer=tokenizer,
        train_dataset=rows,
    )
    logged = [row for row in result.metrics if "loss" in row]
    before = [0, *(row["num_tokens"] for row in logged)]
    return {
        "seconds": [row["seconds_per_step"] * work.window for row in logged],
        "tokens": [row["num_tokens"] - start for row, start in zip(logged, before, strict=False)],
        "losses": [row["loss"] for row in logged],
        "grad_norms": [row["grad_norm"] for row in logged],
        "peak_gib": logged[-1]["peak_memory_gib"],
        "figures": logged[-1],
        "summary": result.summary,
        "plan": json.loads((result.folder / "plan.json").read_text()),
    }


def arm_trl(work: Work, more: dict[str, Any], rows: list[Any], tokenizer: Any, folder: str) -> dict[str, Any]:
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import SFTConfig, SFTTrainer

    attention = more.pop("attn")
    settings = {**common(work), **more}
    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            torch.cuda.synchronize()
            ends.append(time.perf_counter())

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % work.window == 0:
                torch.cuda.synchronize()
                ends.append(time.perf_counter())

    trainer = SFTTrainer(
        model=the_model(attention),
        args=SFTConfig(output_dir=f"{folder}/trl", **settings),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[Clock()],
    )
    a_window = settings["per_device_train_batch_size"] * settings.get("gradient_accumulation_steps", 1) * work.window
    lengths = [len(ids) for ids in trainer.train_dataset[: a_window * (WARM_UP + work.windows)]["input_ids"]]
    torch.cuda.reset_peak_memory_stats()
    trainer.train()
    logged = [row for row in trainer.state.log_history if "loss" in row]
    return {
        "seconds": [b - a for a, b in pairwise(ends)],
        "tokens": [sum(lengths[i : i + a_window]) for i in range(0, len(lengths), a_window)],
        "losses": [row["loss"] for row in logged],
        "grad_norms": [row["grad_norm"] for row in logged],
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
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


def run_arm(args: argparse.Namespace) -> None:
    from transformers import AutoTokenizer

    work = WORKS[args.work]
    tokenizer = AutoTokenizer.from_pretrained(args.shared / "tokenizers" / "qwen-152k")
    rows = rows_of(work, args.shared, tokenizer)
    side, name = args.arm.split(":", 1)
    with tempfile.TemporaryDirectory() as folder:
        if side == "dynotune":
            result = arm_dynotune(work, work.ours[name], rows, tokenizer, folder)
        else:
            result = arm_trl(work, dict(work.trl[name]), rows, tokenizer, folder)
    print("RESULT " + json.dumps({**figures(result, work.window), **result}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True, help="the folder with `data/sft` and `tokenizers`")
    parser.add_argument("--flash-attn", default="", help="a folder with a `flash_attn` package for TRL's arms")
    parser.add_argument("--works", default=",".join(WORKS))
    parser.add_argument("--only", choices=["dynotune", "trl"], help="one side, while working on it")
    parser.add_argument("--out", default="beside_trl.json")
    parser.add_argument("--commit", default="", help="commit of the tree, where it is not a git checkout")
    parser.add_argument("--work", choices=WORKS)
    parser.add_argument("--arm")
    args = parser.parse_args()
    if args.arm:
        run_arm(args)
        return
    import importlib.metadata as metadata

    import torch

    packages = ("torch", "transformers", "peft", "trl", "liger-kernel")
    out: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "commit": args.commit,
        "hardware": torch.cuda.get_device_name(),
        "versions": {p: metadata.version(p) for p in packages} | {"python": platform.python_version()},
        "flash_attn": "stand-in over PyTorch's own FlashAttention-2" if args.flash_attn else "as installed",
        "works": {},
    }
    for key in args.works.split(","):
        work = WORKS[key]
        arms = [f"dynotune:{name}" for name in work.ours]
        arms += [f"trl:{name}" for name in work.trl]
        arms = [arm for arm in arms if arm.startswith(args.only or "")]
        results: dict[str, Any] = {}
        for arm in arms:
            path = args.flash_attn if arm.startswith("trl:") else ""
            env = {**os.environ, "HF_HUB_OFFLINE": "1"}
            env["PYTHONPATH"] = ":".join(filter(None, [path, env.get("PYTHONPATH", "")]))
            done = subprocess.run(
                [sys.executable, __file__, "--shared", str(args.shared), "--work", key, "--arm", arm],
                capture_output=True, text=True, env=env, check=False,
            )  # fmt: skip
            lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
            results[arm] = json.loads(lines[-1][7:]) if lines else {"failed": (done.stdout + done.stderr)[-3000:]}
            shown = {k: results[arm].get(k) for k in ("ms_per_step", "real_tokens_per_second", "peak_gib", "losses")}
            print(key, arm, shown if lines else results[arm], flush=True)
            out["works"][key] = {"settings": {k: v for k, v in asdict(work).items() if k != "ours"}, "arms": results}
            Path(args.out).write_text(json.dumps(out, indent=1))
    from dynotune.measure.words import same_definitions

    for work_results in out["works"].values():
        if measured := {arm: r for arm, r in work_results["arms"].items() if "failed" not in r}:
            same_definitions(measured)
    print(f"{'work':14} {'arm':42} {'ms/step':>9} {'real tok/s':>11} {'GiB':>6}")
    for key, work_results in out["works"].items():
        for arm, r in work_results["arms"].items():
            if "failed" in r:
                print(f"{key:14} {arm:42} failed")
            else:
                print(
                    f"{key:14} {arm:42} {r['ms_per_step']:9.1f} {r['real_tokens_per_second']:11,.0f} {r['peak_gib']:6.1f}"
                )


if __name__ == "__main__":
    main()
