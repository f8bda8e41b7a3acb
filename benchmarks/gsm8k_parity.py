"""Held-out loss of a real tiny model on GSM8K, beside TRL on the same order of rows: 200 steps on the CPU.

    python benchmarks/gsm8k_parity.py --shared SHARED_DATA_FOLDER --out benchmarks/results

Both sides train all weights of stories260K on the first 1,600 problems (prompt: question, completion: answer), in order, and
are evaluated on the first 200 test problems every 20 steps: mean negative log-likelihood over the label tokens. TRL's rows
are tokenised, ordered and trained by TRL; only the held-out mean is computed here, since TRL's own averages batches.
"""

import argparse
import gzip
import importlib.metadata as metadata
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
STEPS, EVERY, BATCH = 200, 20, 8
COLUMNS = {"prompt": "question", "completion": "answer"}
COMMON: dict[str, Any] = {
    "per_device_train_batch_size": BATCH,
    "max_steps": STEPS,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "cosine",
    "warmup_steps": 10,
    "max_length": 512,
    "logging_steps": 1,
    "save_strategy": "no",
    "train_sampling_strategy": "sequential",
    "report_to": "none",
    "use_cpu": True,
    "bf16": False,
    "disable_tqdm": True,
}


def take(source: Path, target: Path, rows: int) -> Path:
    with gzip.open(source, "rt", encoding="utf-8") as lines, target.open("w", encoding="utf-8") as out:
        out.writelines(line for line, _ in zip(lines, range(rows), strict=False))
    return target


def ours(model: Path, train: Path, test: Path, folder: Path) -> dict[str, Any]:
    from dynotune import SFTConfig, train_sft

    result = train_sft(
        SFTConfig(
            model_name_or_path=str(model),
            dataset_name=str(train),
            eval_dataset_name=str(test),
            columns=COLUMNS,
            output_dir=str(folder / "ours"),
            eval_strategy="steps",
            eval_steps=EVERY,
            eval_on_start=True,
            on_bad_row="skip",
            **COMMON,
        )
    )
    return {
        "train": [row["loss"] for row in result.metrics if "loss" in row],
        "held_out": {row["step"]: row["eval_loss"] for row in result.metrics if "eval_loss" in row},
        "tokens_per_second": result.summary["tokens_per_second"],
        "definitions": result.summary["definitions"],
    }


def trl(model: Path, train: Path, test: Path, folder: Path) -> dict[str, Any]:
    import torch
    from datasets import load_dataset
    from transformers import TrainerCallback
    from trl import SFTConfig, SFTTrainer

    rename = {v: k for k, v in COLUMNS.items()}
    sets = {
        name: load_dataset("json", data_files=str(path), split="train", cache_dir=str(folder / "cache")).rename_columns(
            rename
        )
        for name, path in (("train", train), ("test", test))
    }
    held_out: dict[int, float] = {}

    class HeldOut(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            self.measure(0, model)

        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            if state.global_step % EVERY == 0:
                self.measure(state.global_step, model)

        @torch.no_grad()
        def measure(self, step: int, model: Any) -> None:
            model.eval()
            total, count = 0.0, 0
            for row in trainer.eval_dataset:
                ids, labels = torch.tensor(row["input_ids"])[None], torch.tensor(row["labels"])[1:]
                logits = model(input_ids=ids).logits[0, :-1].float()
                total += float(torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum"))
                count += int((labels != -100).sum())
            held_out[step] = total / count
            model.train()

    trainer = SFTTrainer(
        model=str(model),
        args=SFTConfig(output_dir=str(folder / "trl"), gradient_checkpointing=False, **COMMON),
        train_dataset=sets["train"],
        eval_dataset=sets["test"],
        callbacks=[HeldOut()],
    )
    trainer.train()
    return {"train": [row["loss"] for row in trainer.state.log_history if "loss" in row], "held_out": held_out}


def draw(result: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "dynotune"
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), width_ratios=(2, 1), layout="constrained")
    a, b = result["dynotune"]["held_out"], result["trl"]["held_out"]
    left.plot(list(map(int, a)), list(a.values()), "o-", color="#1f6feb", label="Dynotune", linewidth=2)
    left.plot(list(map(int, b)), list(b.values()), "x--", color="#d1242f", label="TRL", markersize=9)
    left.set(xlabel="step", ylabel="held-out loss, nats/token", title="stories260K on GSM8K, 200 steps, same order")
    left.legend()
    gaps = [abs(x - y) / y for x, y in zip(result["dynotune"]["train"], result["trl"]["train"], strict=True)]
    right.semilogy(range(1, STEPS + 1), [max(g, 1e-9) for g in gaps], color="#57606a")
    right.axhline(1e-5, color="#d1242f", linestyle=":", label="gate over 20 steps: 1e-5")
    right.set(xlabel="step", title="relative gap of the training loss")
    right.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    model = args.shared / "tiny-lm" / "stories260K"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train = take(args.shared / "data" / "math" / "gsm8k_train.jsonl.gz", folder / "train.jsonl", STEPS * BATCH)
        test = take(args.shared / "data" / "math" / "gsm8k_test.jsonl.gz", folder / "test.jsonl", 200)
        result: dict[str, Any] = {
            "command": "python benchmarks/gsm8k_parity.py --shared SHARED_DATA_FOLDER",
            "commit": args.commit,
            "hardware": f"CPU {platform.machine()}, {os.cpu_count()} cores, float32",
            "versions": {p: metadata.version(p) for p in ("torch", "transformers", "trl")}
            | {"python": platform.python_version()},
            "dynotune": ours(model, train, test, folder),
            "trl": trl(model, train, test, folder),
        }
    a, b = result["dynotune"], result["trl"]
    held = max(abs(a["held_out"][s] - b["held_out"][s]) / b["held_out"][s] for s in b["held_out"])
    first = max(abs(x - y) / y for x, y in zip(a["train"][:20], b["train"][:20], strict=True))
    whole = max(abs(x - y) / y for x, y in zip(a["train"], b["train"], strict=True))
    result["largest_relative_gap"] = {"held_out": held, "train, 20 steps": first, "train, 200 steps": whole}
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "gsm8k_parity.json").write_text(json.dumps(result, indent=1))
    draw(result, args.out / "gsm8k_parity.svg")
    print("held-out loss", {s: round(v, 5) for s, v in a["held_out"].items()})
    print("largest relative gap", result["largest_relative_gap"])
    return 0 if held < 1e-4 and first < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
