"""The memory that a plan estimates beside the peak that a run measures, on a GPU.

    python benchmarks/gpu_memory.py --out OUT

Each case trains three steps of random documents from random weights and compares the allocator's peak with the sum of the
plan's parts for the largest micro-batch. An estimate is right if it is at most 5 % below and 10 % above the peak (it counts
what the kernels keep; the allocator rounds): too little fails runs, too much only makes micro-batches smaller. The exit code
is 1 if one is not. `--smoke` runs tiny shapes on the CPU, where no peak is measured: it checks this script and nothing else.
"""

import argparse
import gc
import json
import platform
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

from dynotune import SFTConfig, train_sft
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
]
TINY: list[tuple[str, str, int, dict[str, Any]]] = [
    ("LoRA", "tiny", 512, {**LORA, "use_cpu": True}),
    ("full", "tiny", 512, {"use_cpu": True}),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu_memory.json")
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
    for name, shape, tokens, settings in TINY if args.smoke else CASES:
        result["cases"].append({"case": f"{shape} {name}", "tokens": tokens, **measure(shape, tokens, settings)})
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "gpu_memory.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"{'case':<28}{'tokens':>8}{'estimate GiB':>14}{'peak GiB':>10}{'estimate/peak':>15}")
    for case in result["cases"]:
        peak, ratio = case["peak_gib"], case["ratio"]
        print(
            f"{case['case']:<28}{case['tokens']:>8,}{case['estimate_gib']:>14.2f}"
            f"{'-' if peak is None else format(peak, '.2f'):>10}{'-' if ratio is None else format(ratio, '.3f'):>15}"
        )
    return int(any(case["ratio"] is not None and not 0.95 <= case["ratio"] <= 1.10 for case in result["cases"]))


def measure(shape: str, tokens: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Estimate and peak of steps of one micro-batch of `tokens`."""
    rng = np.random.default_rng(0)
    # Thirty-two documents fill a micro-batch exactly, so that the largest there is is the one that is estimated.
    lengths = np.full(32, tokens // 32)
    rows = [{"input_ids": rng.integers(5, 340, n).tolist()} for _ in range(3) for n in lengths]
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
        ran = train_sft(config, tokenizer=tiny_tokenizer(), train_dataset=rows, console=Console(quiet=True))
        plan = json.loads((ran.folder / "plan.json").read_text())
        assert plan["layout"]["micro_batches_per_step"]["max"] == 1, plan["layout"]
        peak = ran.summary.get("peak_memory_gib")
    if torch.cuda.is_available():
        del ran
        gc.collect()  # a model is held by its own cycles
        torch.cuda.empty_cache()
    estimate = sum(part.bytes for part in parts) / GIB
    return {
        "estimate_gib": estimate,
        "peak_gib": peak,
        "ratio": None if peak is None else estimate / peak,
        "parts": {part.name: part.bytes / GIB for part in parts},
        "activations_kb_a_token": memory.per_token.bytes / 1000,
    }


if __name__ == "__main__":
    sys.exit(main())
