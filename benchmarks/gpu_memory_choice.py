"""What a run chooses of activation memory on a GPU: with all of it, again on the same machine, and with little.

    python benchmarks/gpu_memory_choice.py --output FOLDER [--tiny]

Runs of six steps of 64 examples as a user gets them, of the Qwen2.5-7B shape: LoRA r=32 with 28 layers twice (the second
finds what the first one measured), once more with all but 21 GiB of the device taken by somebody else, and full fine-tuning
of 6 layers. JSON: what was said and chosen, the curve, the peak that the run then had, and the proof of every speed-up.
"""

import argparse
import json
import platform
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_engagement import LORA, SHAPE, SMALL, TOKENS, print_run, run
from dynotune.command_line import SHOW_MEMORY
from dynotune.measure.memory import GIB

STEP: dict[str, Any] = {"micro_batch_tokens": None, "global_batch_size": 64}
LITTLE = 21
"""GiB, weights included."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for gpu_memory_choice.json")
    parser.add_argument("--commit", default="")
    parser.add_argument("--tiny", action="store_true", help="small models on the CPU, to try the script")
    args = parser.parse_args()
    SHOW_MEMORY.set(True)
    runs: dict[str, Any] = {}
    result = {
        "command": " ".join(["python", *sys.argv]), "commit": args.commit,
        "hardware": "cpu" if args.tiny else torch.cuda.get_device_name(),
        "versions": {p: metadata.version(p) for p in ("torch", "transformers", "peft")}
        | {"python": platform.python_version()},
        "runs": runs,
    }  # fmt: skip
    shape = SMALL if args.tiny else SHAPE
    lora = {**shape, "num_hidden_layers": 2 if args.tiny else 28}
    cases: list[tuple[str, dict[str, Any], dict[str, Any], int | None]] = [
        ("LoRA", lora, LORA | STEP, None),
        ("LoRA again", lora, LORA | STEP, None),
        ("LoRA, little memory", lora, LORA | STEP, LITTLE),
        ("full", {**shape, "num_hidden_layers": 2 if args.tiny else 6}, STEP, None),
    ]
    for name, model, settings, left in cases:
        runs[name] = one_run(name, model, settings, left if torch.cuda.is_available() else None, args.tiny)
        args.output.mkdir(parents=True, exist_ok=True)
        (args.output / "gpu_memory_choice.json").write_text(json.dumps(result, indent=1, default=str) + "\n")
    return int(any("error" in one for one in runs.values()))


def one_run(name: str, model: dict[str, Any], settings: dict[str, Any], left: int | None, tiny: bool) -> dict[str, Any]:
    """left: GiB of the device that others do not take."""
    taken, before = None, 0
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        if left is not None:
            free = torch.cuda.mem_get_info()[0]
            taken = torch.empty(free - left * GIB, dtype=torch.uint8, device="cuda")
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    began = time.perf_counter()
    figures, _ = run(model, settings, 512 if tiny else TOKENS)
    figures["seconds"] = time.perf_counter() - began
    if torch.cuda.is_available():
        figures["peak_gib"] = (torch.cuda.max_memory_allocated() - before) / GIB
    del taken
    print_run(name, figures)
    for line in figures["said"]:
        if "a micro-batch holds" in line or "<- chosen" in line:
            print(f"   {line}", flush=True)
    return figures


if __name__ == "__main__":
    sys.exit(main())
