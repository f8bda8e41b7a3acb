"""Held-out reward accuracy of a real tiny model on preferences, beside TRL on the same order of pairs, on the CPU.

    python benchmarks/preference_stories.py --shared SHARED_DATA_FOLDER --out benchmarks/results

Both sides train all weights of stories260K by DPO on the first pairs of `preference_mix`, in the file's order, that are no
longer than 256 tokens. The last of them are held out; no training pair has a prompt of theirs. TRL's pairs are tokenised,
ordered, trained and evaluated by TRL, whose evaluation averages batches: all are of one size here.
"""

import argparse
import gzip
import importlib.metadata as metadata
import json
import os
import platform
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
BATCH, WINDOW, POINTS = 16, 256, 5
KEPT = ("rewards/accuracies", "rewards/margins", "loss")


def common(steps: int) -> dict[str, Any]:
    return {
        "per_device_train_batch_size": BATCH,
        "per_device_eval_batch_size": BATCH,
        "max_steps": steps,
        "learning_rate": 1e-4,  # at 3e-4 the accuracy rose to 62.5 % of 160 held-out pairs and fell back to 58.8
        "lr_scheduler_type": "cosine",
        "warmup_steps": 10,
        "beta": 0.1,
        "max_length": WINDOW,
        "logging_steps": 1,
        "eval_strategy": "steps",
        "eval_steps": steps // POINTS,
        "save_strategy": "no",
        "train_sampling_strategy": "sequential",
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
    }


def pairs(source: Path, model: Path, train: int, held_out: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """So many pairs to train on and to hold out, of those of which both sides have at most `WINDOW` tokens."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, model_max_length=1 << 30)  # longer texts are only counted here

    def fits(row: dict[str, Any]) -> bool:
        sides = [row["prompt"] + row[side] for side in ("chosen", "rejected")]
        return all(len(tokenizer.apply_chat_template(side, return_dict=True)["input_ids"]) <= WINDOW for side in sides)

    with gzip.open(source, "rt", encoding="utf-8") as lines:
        fitting = (row for row in map(json.loads, lines) if "tools" not in row and fits(row))
        rows = list(islice(fitting, train + train // 2 + held_out))
    unseen = rows[-held_out:]
    prompts = {row["prompt_id"] for row in unseen}
    seen = [row for row in rows[:-held_out] if row["prompt_id"] not in prompts][:train]
    if len(seen) < train:
        raise SystemExit(f"only {len(seen)} pairs to train on")
    first, second = (
        [{key: row[key] for key in ("prompt", "chosen", "rejected")} for row in part] for part in (seen, unseen)
    )
    return first, second


def curves(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What either side logged: the loss of every step, and its evaluations by step."""
    evaluations = [row for row in rows if "eval_loss" in row]
    return {
        "train": [row["loss"] for row in rows if "loss" in row],
        "held_out": {key: {row["step"]: row[f"eval_{key}"] for row in evaluations} for key in KEPT},
    }


def ours(model: Path, train: list[Any], test: list[Any], folder: Path, steps: int) -> dict[str, Any]:
    from dynotune import DPOConfig, train_dpo

    began = time.perf_counter()
    result = train_dpo(
        DPOConfig(model_name_or_path=str(model), output_dir=str(folder / "ours"), **common(steps)),
        train_dataset=train,
        eval_dataset=test,
    )
    return {**curves(result.metrics), "seconds": time.perf_counter() - began, "summary": result.summary}


def trl(model: Path, train: list[Any], test: list[Any], folder: Path, steps: int) -> dict[str, Any]:
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    began = time.perf_counter()
    trainer = DPOTrainer(
        model=str(model),
        args=DPOConfig(output_dir=str(folder / "trl"), gradient_checkpointing=False, **common(steps)),
        train_dataset=Dataset.from_list(train),
        eval_dataset=Dataset.from_list(test),
    )
    trainer.train()
    return {**curves(trainer.state.log_history), "seconds": time.perf_counter() - began}


def compare(result: dict[str, Any]) -> dict[str, float]:
    """The largest gaps between the two: of the loss relative to TRL's, of held-out accuracy in shares of the pairs."""
    a, b = result["dynotune"], result["trl"]
    gaps = relative_gaps(result)
    accuracies = [side["held_out"]["rewards/accuracies"] for side in (a, b)]
    losses = [side["held_out"]["loss"] for side in (a, b)]
    return {
        "training loss, first 20 steps": max(gaps[:20]),
        "training loss": max(gaps),
        "held-out loss": max(abs(losses[0][s] - losses[1][s]) / losses[1][s] for s in losses[1]),
        "held-out reward accuracy": max(abs(accuracies[0][s] - accuracies[1][s]) for s in accuracies[1]),
    }


def relative_gaps(result: dict[str, Any]) -> list[float]:
    return [abs(x - y) / y for x, y in zip(result["dynotune"]["train"], result["trl"]["train"], strict=True)]


def agree(result: dict[str, Any]) -> bool:
    """At every step and point the two sides are one."""
    gap = result["largest_gap"]
    # A pair whose margin is about zero may fall on either side: one at most.
    pair = 1.5 / result["held_out_pairs"]
    return bool(gap["training loss"] < 1e-4 and gap["held-out loss"] < 1e-4 and gap["held-out reward accuracy"] <= pair)


def holds(result: dict[str, Any]) -> bool:
    """The two sides agree, and the held-out reward accuracy of both rises, to above chance."""
    accuracies = [list(result[side]["held_out"]["rewards/accuracies"].values()) for side in ("dynotune", "trl")]
    return agree(result) and all(a[-1] > max(a[0], 0.5) for a in accuracies)


def draw(result: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "dynotune"
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), width_ratios=(2, 1), layout="constrained")
    a, b = (result[side]["held_out"]["rewards/accuracies"] for side in ("dynotune", "trl"))
    left.plot(list(map(int, a)), [100 * v for v in a.values()], "o-", color="#1f6feb", label="Dynotune", linewidth=2)
    left.plot(list(map(int, b)), [100 * v for v in b.values()], "x--", color="#d1242f", label="TRL", markersize=9)
    left.axhline(50, color="#57606a", linestyle=":", label="chance")
    title = f"stories260K on preference_mix, {result['steps']} steps of {BATCH} pairs, same order"
    left.set(xlabel="step", ylabel=f"reward accuracy, % of {result['held_out_pairs']} held-out pairs", title=title)
    left.legend()
    gaps = relative_gaps(result)
    right.semilogy(range(1, len(gaps) + 1), [max(gap, 1e-9) for gap in gaps], color="#57606a")
    right.axhline(1e-4, color="#d1242f", linestyle=":", label="asserted: 1e-4")
    right.set(xlabel="step", title="relative gap of the training loss")
    right.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--held-out", type=int, default=320, help=f"a multiple of {BATCH}")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    model = args.shared / "tiny-lm" / "stories260K"
    source = args.shared / "data" / "preference" / "preference_mix.jsonl.gz"
    train, test = pairs(source, model, args.steps * BATCH, args.held_out)
    with tempfile.TemporaryDirectory() as name:
        result: dict[str, Any] = {
            "command": f"python benchmarks/preference_stories.py --shared SHARED_DATA_FOLDER --steps {args.steps}",
            "commit": args.commit,
            "hardware": f"CPU {platform.machine()}, {os.cpu_count()} cores, float32",
            "versions": {p: metadata.version(p) for p in ("torch", "transformers", "trl")}
            | {"python": platform.python_version()},
            "steps": args.steps,
            "held_out_pairs": len(test),
            "settings": common(args.steps),
            "dynotune": ours(model, train, test, Path(name), args.steps),
            "trl": trl(model, train, test, Path(name), args.steps),
        }
    result["largest_gap"] = compare(result)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "preference_stories.json").write_text(json.dumps(result, indent=1))
    draw(result, args.out / "preference_stories.svg")
    for side in ("dynotune", "trl"):
        accuracies = result[side]["held_out"]["rewards/accuracies"]
        print(f"{side}: held-out reward accuracy", {step: round(value, 4) for step, value in accuracies.items()})
    print("largest gap", result["largest_gap"])
    return 0 if holds(result) else 1


if __name__ == "__main__":
    sys.exit(main())
