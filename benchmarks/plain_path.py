"""The plain path on a GPU: the Qwen2.5-7B shape under LoRA on real conversations, beside TRL on the same rows.

    python benchmarks/plain_path.py --data sft_mix.jsonl.gz --tokenizer qwen-152k --out results.json

Each arm runs in a process of its own. Rows, order, steps and hyper-parameters are the same; weights are random. The plain
path runs one document at a time and is the baseline of everything that follows, not a fast path.
"""

import argparse
import gzip
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

QWEN_7B = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
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
LORA = {
    "use_peft": True,
    "lora_r": 32,
    "lora_alpha": 64,
    "lora_dropout": 0.0,
    "lora_target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
}
WARM_UP = 4
"""Steps that are not counted: the first compiles kernels and fills the allocator."""


def common(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "per_device_train_batch_size": args.batch,
        "max_steps": args.steps,
        "max_length": args.max_length,
        "learning_rate": 1e-4,
        "max_grad_norm": 1.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "train_sampling_strategy": "sequential",
        "report_to": "none",
        "seed": 17,
    }


def take_rows(args: argparse.Namespace, folder: Path) -> Path:
    """The first rows of at most 4,096 tokens, without tool calls (the template would drop them)."""
    out = folder / "rows.jsonl"
    wanted = args.batch * args.steps
    with gzip.open(args.data, "rt", encoding="utf-8") as source, out.open("w", encoding="utf-8") as target:
        for line in source:
            row = json.loads(line)
            if row["n_tokens"] <= 4096 and "tools" not in row and not any("tool_calls" in m for m in row["messages"]):
                target.write(json.dumps({"messages": row["messages"]}) + "\n")
                wanted -= 1
                if not wanted:
                    return out
    raise SystemExit("the data set has too few rows")


def arm_dynotune(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    from dynotune import SFTConfig, train_sft

    model = folder / "qwen-7b" / "config.json"
    model.parent.mkdir()
    model.write_text(json.dumps(QWEN_7B))
    result = train_sft(
        SFTConfig(
            model_name_or_path=str(model),
            random_weights=True,
            tokenizer_name_or_path=args.tokenizer,
            dataset_name=str(take_rows(args, folder)),
            output_dir=str(folder / "run"),
            gradient_checkpointing=args.checkpointing,
            **LORA,
            **common(args),
        )
    )
    rows = [row for row in result.metrics if "loss" in row]
    seconds = [row["seconds_per_step"] for row in rows]
    tokens = [rows[0]["num_tokens"]] + [b["num_tokens"] - a["num_tokens"] for a, b in pairwise(rows)]
    return {
        **figures(seconds, tokens),
        "peak_gib": rows[-1]["peak_memory_gib"],
        "losses": [row["loss"] for row in rows],
        "grad_norms": [row["grad_norm"] for row in rows],
    }


def arm_trl(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    import torch
    from datasets import load_dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    torch.manual_seed(17)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(Qwen2Config(**QWEN_7B), dtype=torch.bfloat16)
    ends: list[float] = []
    tokens: list[int] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            torch.cuda.synchronize()
            ends.append(time.perf_counter())

    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=str(folder / "trl"), gradient_checkpointing=args.checkpointing, bf16=True, disable_tqdm=True,
            **common(args),
        ),
        train_dataset=load_dataset("json", data_files=str(take_rows(args, folder)), split="train"),
        processing_class=AutoTokenizer.from_pretrained(args.tokenizer),
        peft_config=LoraConfig(
            r=32, lora_alpha=64, lora_dropout=0.0, target_modules=LORA["lora_target_modules"], task_type="CAUSAL_LM"
        ),
        callbacks=[Clock()],
    )  # fmt: skip
    inner = trainer.training_step

    def counted(model: Any, inputs: Any, *more: Any, **named: Any) -> Any:
        tokens.append(int(inputs["attention_mask"].sum()))
        return inner(model, inputs, *more, **named)

    trainer.training_step = counted
    torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    trainer.train()
    seconds = [b - a for a, b in zip([began, *ends], ends, strict=False)]
    return {
        **figures(seconds, tokens),
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
        "losses": [row["loss"] for row in trainer.state.log_history if "loss" in row],
        "grad_norms": [row["grad_norm"] for row in trainer.state.log_history if "loss" in row],
    }


def figures(seconds: list[float], tokens: list[int]) -> dict[str, Any]:
    """Real tokens over wall time of the counted steps; the median step; the first step apart."""
    counted_s, counted_t = seconds[WARM_UP:], tokens[WARM_UP:]
    return {
        "steps": len(seconds),
        "ms_per_step_median": 1e3 * statistics.median(counted_s),
        "ms_per_step_min_max": [1e3 * min(counted_s), 1e3 * max(counted_s)],
        "real_tokens_per_step": statistics.mean(counted_t),
        "real_tokens_per_second": sum(counted_t) / sum(counted_s),
        "first_step_s": seconds[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", default="plain_path.json")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--max-length", type=int, default=1024)
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--arm", choices=["dynotune", "trl"])
    parser.add_argument("--commit", default="", help="commit of the tree, where it is not a git checkout")
    args = parser.parse_args()
    if args.arm:
        with tempfile.TemporaryDirectory() as folder:
            result = {"dynotune": arm_dynotune, "trl": arm_trl}[args.arm](args, Path(folder))
        print("RESULT " + json.dumps(result), flush=True)
        return
    import importlib.metadata as metadata

    import torch

    out: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "commit": args.commit,
        "hardware": torch.cuda.get_device_name(),
        "versions": {p: metadata.version(p) for p in ("torch", "transformers", "peft", "trl")}
        | {"python": platform.python_version()},
        "arms": {},
    }
    for arm in ("dynotune", "trl"):
        done = subprocess.run(
            [sys.executable, *sys.argv, "--arm", arm],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"}, check=False,
        )  # fmt: skip
        lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        out["arms"][arm] = json.loads(lines[-1][7:]) if lines else {"failed": done.stdout[-2000:]}
    Path(args.out).write_text(json.dumps(out, indent=1))
    for arm, r in out["arms"].items():
        print(arm, {k: v for k, v in r.items() if k not in ("losses", "grad_norms")})


if __name__ == "__main__":
    main()
