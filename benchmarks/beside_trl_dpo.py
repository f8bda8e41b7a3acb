"""DPO steps on a GPU beside TRL's best settings: the same pairs in the same order, from the same weights, 32 a step.

    python -m benchmarks.beside_trl_dpo --shared SHARED --out results.json [--works probe,preference-mix]

The Qwen2.5-7B shape with random weights, a new LoRA adapter r=32 on all linears, beta 0.1. `probe`: random words, prompts of
about 128 and answers of about 102 tokens; `preference-mix`: rows of `preference_mix.jsonl.gz` in their order, `max_length`
4096. Each arm runs in a process of its own; time is wall time over windows of steps behind the warm-up, with the reference
computed before. TRL's `flash_attention_2` needs a package without a wheel: `--flash-attn FOLDER`, as in `beside_trl.py`.

On a machine that has run nothing yet the first arm pays for more than it should: so the probe's first arm comes once more at
the end, and its two results stand side by side.
"""

import argparse
import gzip
import json
import math
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.arms import StepClock, WindowClock, arguments, hand_back, head, run_all
from benchmarks.beside_trl import QWEN_7B, TARGETS

PAIRS, WINDOW, WARM_UP = 32, 2, 2
"""Pairs of a step, steps of a window, and windows that do not count: the first compiles and has the step that is traced."""

WINDOWS = {"probe": 4, "preference-mix": 3}
"""That count. TRL takes some seconds for a step of the longer pairs."""

WORDS = 5000
"""Of the probe's vocabulary."""

SPARE = 24
"""Rows more than the steps take: `max_length` leaves some without a label, in both trainers."""
FA2 = {"attn": "flash_attention_2", "use_liger_kernel": True, "precompute_ref_log_probs": True}


def trl(pairs: int, **more: Any) -> dict[str, Any]:
    """TRL's settings for batches of so many pairs, of which a step has 32 in all."""
    return {**FA2, "per_device_train_batch_size": pairs, "gradient_accumulation_steps": PAIRS // pairs, **more}


WITHIN_45 = {"micro_batch_tokens": 6272}
WORKS: dict[str, dict[str, dict[str, Any]]] = {
    "probe": {
        "dynotune, within 45 GiB": WITHIN_45,
        "dynotune": {},
        "trl, fa2 + Liger, 4 x 8": trl(8),
        "dynotune, within 45 GiB, again": WITHIN_45,
    },
    "preference-mix": {
        "dynotune": {},
        "trl, fa2 + Liger, 4 x 8 padding-free, checkpointing": trl(8, padding_free=True, gradient_checkpointing=True),
        "trl, fa2 + Liger, 16 x 2 padding-free": trl(2, padding_free=True),
    },
}
"""By work the arms. TRL's larger batches were slower (16 of the probe's pairs, padding-free) or run out of memory, as do 4
pairs of `preference-mix` without checkpointing, padding-free."""


def steps_of(work: str) -> int:
    return WINDOW * (WARM_UP + WINDOWS[work])


def common() -> dict[str, Any]:
    return {
        "max_length": 4096,
        "logging_steps": WINDOW,
        "learning_rate": 5e-6,
        "max_grad_norm": 1.0,
        "save_strategy": "no",
        "train_sampling_strategy": "sequential",
        "report_to": "none",
        "seed": 17,
        "bf16": True,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
    }


def rows_of(work: str, shared: Path) -> list[dict[str, Any]]:
    """As many pairs as the steps take."""
    pairs = PAIRS * steps_of(work)
    if work == "preference-mix":
        rows = []
        with gzip.open(shared / "data" / "preference" / "preference_mix.jsonl.gz", "rt", encoding="utf-8") as source:
            for line in source:
                row = json.loads(line)
                if "tools" in row:
                    continue  # Qwen's template would drop them in one of the two trainers and not in the other
                rows.append({key: row[key] for key in ("prompt", "chosen", "rejected")})
                if len(rows) == pairs + SPARE:
                    return rows
        raise SystemExit("the data set has too few rows")
    draw = random.Random(0)

    def text(median: int) -> str:
        length = int(min(2000, max(8, draw.lognormvariate(math.log(median), 0.7))))
        return " ".join(f"w{draw.randrange(WORDS)}" for _ in range(length))

    return [{"prompt": text(100), "chosen": f" {text(80)}", "rejected": f" {text(80)}"} for _ in range(pairs)]


def tokenizer_of(work: str, shared: Path) -> Any:
    """Of the probe one whose every word is a token."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if work != "probe":
        return AutoTokenizer.from_pretrained(shared / "tokenizers" / "qwen-152k")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {f"w{i}": i for i in range(WORDS)} | {"<pad>": WORDS, "<eos>": WORDS + 1, "<unk>": WORDS + 2}
    tokens = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokens.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokens, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def the_model(attention: str, layers: int) -> Any:
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config

    torch.manual_seed(17)
    with torch.device("cuda"):
        return AutoModelForCausalLM.from_config(
            Qwen2Config(**{**QWEN_7B, "num_hidden_layers": layers}),
            dtype=torch.bfloat16,
            attn_implementation=attention,
        )


def adapter() -> Any:
    from peft import LoraConfig

    return LoraConfig(r=32, lora_alpha=64, lora_dropout=0.0, target_modules=TARGETS, task_type="CAUSAL_LM")


def same_start() -> Any:
    """A callback that gives both sides' adapters the same first matrices."""
    import torch
    from transformers import TrainerCallback

    class SameStart(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            generator = torch.Generator(device="cuda").manual_seed(11)
            with torch.no_grad():
                for name, p in sorted(model.named_parameters()):
                    if "lora_A" in name and p.requires_grad:
                        drawn = torch.rand(p.shape, generator=generator, device="cuda")
                        p.copy_((2 * drawn - 1) / p.shape[1] ** 0.5)

    return SameStart()


def arm_dynotune(layers: int, more: dict[str, Any], rows: list[Any], tokenizer: Any, folder: str) -> dict[str, Any]:
    from dynotune import DPOConfig, train_dpo

    began, clock = time.perf_counter(), StepClock()
    result = train_dpo(
        DPOConfig(
            **common(),
            output_dir=f"{folder}/run",
            per_device_train_batch_size=PAIRS,
            on_bad_row="skip",
            **more,
        ),
        model=the_model("sdpa", layers),
        tokenizer=tokenizer,
        train_dataset=rows,
        peft_config=adapter(),
        callbacks=[same_start(), clock],
    )
    logged = [row for row in result.metrics if "loss" in row]
    run = result.folder
    return {
        "seconds": [row["seconds_per_step"] * WINDOW for row in logged],
        "losses": [row["loss"] for row in logged],
        "margins": [row["rewards/margins"] for row in logged],
        "grad_norms": [row["grad_norm"] for row in logged],
        "peak_gib": logged[-1]["peak_memory_gib"],
        **clock.read(),
        "all_seconds": time.perf_counter() - began,
        "figures": logged[-1],
        "summary": result.summary,
        "plan": json.loads((run / "plan.json").read_text()),
        "said": json.loads((run / "environment.json").read_text())["execution"],
        "engagement": json.loads((run / "engagement.json").read_text()),
    }


def arm_trl(layers: int, more: dict[str, Any], rows: list[Any], tokenizer: Any, folder: str) -> dict[str, Any]:
    import torch
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    attention = more.pop("attn")
    began, windows, clock = time.perf_counter(), WindowClock(WINDOW), StepClock()
    trainer = DPOTrainer(
        model=the_model(attention, layers),
        args=DPOConfig(output_dir=f"{folder}/trl", **{**common(), **more}),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=adapter(),
        callbacks=[same_start(), windows, clock],
    )
    set_up = time.perf_counter() - began
    torch.cuda.reset_peak_memory_stats()
    trainer.train()
    logged = [row for row in trainer.state.log_history if "loss" in row]
    return {
        "seconds": windows.seconds,
        "losses": [row["loss"] for row in logged],
        "margins": [row["rewards/margins"] for row in logged],
        "grad_norms": [row["grad_norm"] for row in logged],
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
        **clock.read(),
        "set_up_seconds": set_up,
        "all_seconds": time.perf_counter() - began,
    }


def figures(arm: dict[str, Any]) -> dict[str, Any]:
    """Over the counted windows: milliseconds a step with their range, pairs a second."""
    seconds = arm["seconds"][WARM_UP:]
    steps = [1e3 * s / WINDOW for s in seconds]
    return {
        "ms_per_step": statistics.mean(steps),
        "ms_per_step_min_max": [min(steps), max(steps)],
        "pairs_per_second": PAIRS * WINDOW * len(seconds) / sum(seconds),
        "first_window_s": arm["seconds"][0],
    }


def run_arm(args: argparse.Namespace) -> None:
    settings = {"max_steps": steps_of(args.work), **WORKS[args.work][args.arm]}
    tokenizer = tokenizer_of(args.work, args.shared)
    rows = rows_of(args.work, args.shared)
    arm = arm_dynotune if args.arm.startswith("dynotune") else arm_trl
    with tempfile.TemporaryDirectory() as folder:
        result = arm(args.layers, settings, rows, tokenizer, folder)
    hand_back({**figures(result), **result})


def main() -> None:
    parser = arguments(__doc__, WORKS, "beside_trl_dpo.json")
    parser.add_argument("--layers", type=int, default=QWEN_7B["num_hidden_layers"])
    args = parser.parse_args()
    if args.arm:
        run_arm(args)
        return
    out = head(args, "benchmarks.beside_trl_dpo")
    out["settings"] = {
        **common(),
        "windows": WINDOWS,
        "pairs_per_step": PAIRS,
        "layers": args.layers,
        "warm_up_windows": WARM_UP,
    }
    run_all(args, "benchmarks.beside_trl_dpo", out, WORKS.__getitem__, ["--layers", str(args.layers)])
    print(f"{'work':15} {'arm':40} {'ms/step':>8} {'pairs/s':>8} {'GiB':>6}  losses")
    for work, measured in out["works"].items():
        for arm, r in measured["arms"].items():
            if "failed" in r:
                print(f"{work:15} {arm:40} failed")
                continue
            losses = " ".join(f"{loss:.4f}" for loss in r["losses"])
            rates = f"{r['ms_per_step']:8.0f} {r['pairs_per_second']:8.1f} {r['peak_gib']:6.1f}"
            print(f"{work:15} {arm:40} {rates}  {losses}")
            print(" " * 16, "ms:", *[f"{ms:.0f}" for ms in r["step_ms"]], "segments:", *r["step_segments"])


if __name__ == "__main__":
    main()
