"""The memory that a plan estimates beside the peak that a run measures, on a GPU.

    python benchmarks/gpu_memory.py --out OUT [--only WORDS]

Each case trains six steps of random documents from random weights and compares the allocator's peak with the sum of the
plan's parts for the largest micro-batch; what is reserved and the median of the last three steps stand beside it. An
estimate is right if it is at most 5 % below and 10 % above the peak (it counts what the kernels keep; the allocator rounds):
too little fails runs, too much only makes micro-batches smaller. The exit code is 1 if one is not. The cases of
docs/full-on-one-card.md are `--only recipe`, 150 s on an H200; bitsandbytes is needed for three of them. `--smoke` runs
tiny shapes on the CPU, where no peak is measured: it checks this script and nothing else.
"""

import argparse
import gc
import json
import platform
import statistics
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
from tests.tiny import tiny_tokenizer

from benchmarks.whole_file import write_json
from dynotune import SFTConfig, train_sft
from dynotune.errors import DynotuneError
from dynotune.estimate.memory import step_memory, target_of
from dynotune.measure.memory import GIB

SHAPES: dict[str, dict[str, int]] = {
    "7B": {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
           "num_key_value_heads": 4, "vocab_size": 152064},
    "0.5B": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
             "num_key_value_heads": 2, "vocab_size": 151936},
    "tiny": {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 512},
}  # fmt: skip
LORA = {"use_peft": True, "lora_r": 32, "lora_target_modules": "all-linear"}
CASES: list[tuple[str, str, int, dict[str, Any]]] = [
    ("LoRA, dropout 0", "7B", 8192, {**LORA, "lora_dropout": 0.0}),
    ("LoRA, dropout 0.05", "7B", 8192, {**LORA, "lora_dropout": 0.05}),
    ("LoRA, checkpointing", "7B", 16384, {**LORA, "lora_dropout": 0.0, "gradient_checkpointing": True}),
    ("full", "0.5B", 8192, {}),
    ("full", "0.5B", 16384, {}),
    ("full, checkpointing", "0.5B", 16384, {"gradient_checkpointing": True}),
    ("full, states of 8 bits (recipe)", "0.5B", 16384, {"optim": "adamw_8bit"}),
    ("full, recipe B", "7B", 4096, {"optim": "adamw_8bit", "activation_memory": "full"}),
    ("full, recipe C", "7B", 4096, {"optim": "adamw_8bit", "activation_memory": "none"}),
    ("full, recipe A", "7B", 4096, {"activation_memory": "full"}),
]
TINY: list[tuple[str, str, int, dict[str, Any]]] = [
    ("LoRA", "tiny", 512, {**LORA, "use_cpu": True}),
    ("full", "tiny", 512, {"use_cpu": True}),
    ("full, recipe", "tiny", 512, {"use_cpu": True, "optim": "adamw_8bit", "activation_memory": "full"}),
]
STEPS = 6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu_memory.json")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--commit", default="")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    result: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]), "commit": args.commit,
        "hardware": "cpu" if args.smoke else torch.cuda.get_device_name(),
        "versions": {p: metadata.version(p) for p in ("torch", "transformers", "peft")}
        | {"python": platform.python_version()},
        "cases": [],
    }  # fmt: skip
    print(f"{'case':<38}{'tokens':>8}{'estimate GiB':>14}{'peak GiB':>10}{'estimate/peak':>15}{'ms a step':>11}")
    for name, shape, tokens, settings in TINY if args.smoke else CASES:
        if args.only not in name:
            continue
        case = {"case": f"{shape} {name}", "tokens": tokens, **measure(shape, tokens, settings)}
        result["cases"].append(case)
        write_json(args.out / "gpu_memory.json", result)
        if "failed" in case:
            print(f"{case['case']:<38}{case['tokens']:>8,}  {case['failed']}", flush=True)
            continue
        peak, ratio = case["peak_gib"], case["ratio"]
        print(
            f"{case['case']:<38}{case['tokens']:>8,}{case['estimate_gib']:>14.2f}"
            f"{'-' if peak is None else format(peak, '.2f'):>10}{'-' if ratio is None else format(ratio, '.3f'):>15}"
            f"{case['ms_a_step']:>11.1f}",
            flush=True,
        )
    return int(any(one.get("ratio") and not 0.95 <= one["ratio"] <= 1.10 for one in result["cases"]))


def measure(shape: str, tokens: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Estimate and peak of steps of one micro-batch of `tokens`."""
    rng = np.random.default_rng(0)
    # Thirty-two documents fill a micro-batch exactly, so that the largest there is is the one that is estimated.
    lengths = np.full(32, tokens // 32)
    rows = [{"input_ids": rng.integers(5, 340, n).tolist()} for _ in range(STEPS) for n in lengths]
    with tempfile.TemporaryDirectory() as folder:
        config_file = Path(folder) / "config.json"
        shape_of = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": False}
        config_file.write_text(json.dumps({**shape_of, **SHAPES[shape], "max_position_embeddings": 32768}))
        config = SFTConfig(
            model_name_or_path=folder, random_weights=True, output_dir=f"{folder}/run", max_length=None,
            global_batch_size=len(lengths), num_train_epochs=1, micro_batch_tokens=tokens, packed_execution="on",
            save_strategy="no", logging_steps=1, disable_tqdm=True, token_cache="off", **settings,
        )  # fmt: skip
        memory = step_memory(config, target_of(config))
        parts = memory.parts(tokens, 1.0, packed=True, accumulates=False)  # one micro-batch a step
        estimate = sum(part.bytes for part in parts) / GIB
        try:
            ran = train_sft(config, tokenizer=tiny_tokenizer(), train_dataset=rows, console=Console(quiet=True))
        except DynotuneError as error:  # no room, as a rule: a result, and the cases behind it are worth more
            empty()
            return {"estimate_gib": estimate, "failed": str(error)}
        plan = json.loads((ran.folder / "plan.json").read_text())
        assert plan["layout"]["micro_batches_per_step"]["max"] == 1, plan["layout"]
        peak = ran.summary.get("peak_memory_gib")
        reserved = torch.cuda.max_memory_reserved() / GIB if torch.cuda.is_available() else None
        steps = [row["seconds_per_step"] for row in ran.metrics if "seconds_per_step" in row]
    del ran
    empty()
    return {
        "estimate_gib": estimate,
        "peak_gib": peak,
        "reserved_gib": reserved,
        "ms_a_step": 1e3 * statistics.median(steps[-3:]),
        "ratio": None if peak is None else estimate / peak,
        "parts": {part.name: part.bytes / GIB for part in parts},
        "activations_kb_a_token": memory.per_token.bytes / 1000,
    }


def empty() -> None:
    """Leave the card as it was before the case."""
    gc.collect()  # a model is held by its own cycles
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


if __name__ == "__main__":
    sys.exit(main())
