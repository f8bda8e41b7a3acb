"""The figures of speed on a GPU: the peak it is known by, the clock, FLOPs against PyTorch's counter, MFU of a real run.

    python benchmarks/gpu_measure.py --out OUT [--commit COMMIT]

The exit code is 1 if a check fails. `--smoke` runs tiny shapes on the CPU, which checks this script and nothing else.
"""

import argparse
import importlib.metadata as metadata
import json
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.measure.steps import step_of
from tests.tiny import chats, tiny_model, tiny_tokenizer

from dynotune import SFTConfig, train_sft
from dynotune.measure.clock import WindowClock
from dynotune.measure.flops import Flops
from dynotune.measure.peaks import Peak, peak_of
from dynotune.measure.words import DEFINITIONS, Counts, utilisation
from dynotune.report.speed import speed_sentence

SHOWN = {"tflops", "source", "reason", "share_of_peak", "by_host_clock", "largest_relative_difference", "says"}
SHOWN |= {"microseconds_a_step"}
# As many key and value heads: the counter of torch 2.11 refuses attention with fewer.
SHAPE = {
    "hidden_size": 512, "intermediate_size": 1536, "head_dim": 64, "num_attention_heads": 8, "num_key_value_heads": 8,
}  # fmt: skip


def check_peak(device: torch.device, given: float | None) -> dict[str, Any]:
    peak = peak_of(device, given)
    said = {"tflops": peak.tflops, "source": peak.source} if isinstance(peak, Peak) else {"reason": peak}
    return {"ok": isinstance(peak, Peak), **said}


def check_clock(device: torch.device, given: float | None, size: int, times: int) -> dict[str, Any]:
    """A large product has a share of the peak below 1 by the device's clock. Negative control on a GPU: the host's clock,
    read without waiting, sees only how fast work is asked for, and its share is impossible."""
    peak = peak_of(device, given)
    assert isinstance(peak, Peak), peak
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    if device.type == "cuda":
        torch.cuda.synchronize()
    clock, began = WindowClock(device), time.perf_counter()
    for _ in range(times):
        a @ b
    window, host = clock.window(), time.perf_counter() - began
    if device.type == "cuda":
        torch.cuda.synchronize()
    flops = times * 2 * size**3
    share, naive = (utilisation(flops, peak.flops * s) or 0.0 for s in (window.seconds(), host))
    ok = 0.4 < share < 1 < naive if device.type == "cuda" else share > 0
    return {"ok": ok, "share_of_peak": share, "tflops": flops / window.seconds() / 1e12, "by_host_clock": naive}


def check_counter(device: torch.device) -> dict[str, Any]:
    """With a flash kernel, whose backward PyTorch counts as we do: five products, over the whole square."""
    lengths, worst = [300, 800], 0.0
    for kind in ("llama", "qwen3", "mistral"):
        model: Any = tiny_model(kind, **{**SHAPE, "attn_implementation": "sdpa"}).to(device, torch.bfloat16).train()
        flops, step = Flops.of(model), step_of(lengths)
        ours = flops.of_step(step, labelled_rows_head=False).hardware_flops
        for part in flops.attention:
            ours += part.hardware * (2 * sum(n * n for n in lengths) - part.reach.twice_pairs(step.lengths))
        with FlopCounterMode(display=False) as counter:
            for n in lengths:
                ids = torch.randint(2, 300, (1, n), device=device)
                model(input_ids=ids, use_cache=False).logits.sum().backward()
        worst = max(worst, abs(ours / counter.get_total_flops() - 1))
    # On the CPU the counter sees nothing of attention.
    return {"ok": worst < 0.01 or device.type == "cpu", "largest_relative_difference": worst}


def check_run(device: torch.device, given: float | None) -> dict[str, Any]:
    """Rows and summary of a real run: the work of all rows is the work of the run, and no share is impossible."""
    with tempfile.TemporaryDirectory() as folder:
        result = train_sft(
            SFTConfig(
                output_dir=folder, overwrite_output_dir=True, per_device_train_batch_size=8, max_steps=40, logging_steps=5,
                save_strategy="no", learning_rate=1e-4, device_peak_tflops=given, use_cpu=device.type == "cpu",
            ),
            model=tiny_model("qwen2", **SHAPE), tokenizer=tiny_tokenizer(), train_dataset=chats(320),
            console=Console(quiet=True),
        )  # fmt: skip
    rows, summary = [row for row in result.metrics if "loss" in row], result.summary
    work = sum(row["mfu"] * row["seconds_per_step"] * 5 for row in rows)
    ok = abs(work / (summary["mfu"] * summary["train_seconds"]) - 1) < 0.02 and 0 < summary["mfu"] <= summary["hfu"]
    return {"ok": ok and (summary["hfu"] < 1 or device.type == "cpu"), "says": speed_sentence(summary), **summary}


def check_cost() -> dict[str, Any]:
    """What a step's figures cost the host, with 64 documents."""
    flops, step = Flops.of(tiny_model("gemma2")), step_of(list(range(20, 84)), labels=900, tokens=[8192])
    began = time.perf_counter()
    for _ in range(1000):
        Counts.of(step)
        flops.of_step(step, labelled_rows_head=True)
    microseconds = 1e3 * (time.perf_counter() - began)
    return {"ok": microseconds < 100, "microseconds_a_step": microseconds}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu_measure.json")
    parser.add_argument("--commit", default="")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    device, given = (torch.device("cpu"), 1.0) if args.smoke else (torch.device("cuda", 0), None)
    checks = {
        "peak": check_peak(device, given),
        "clock": check_clock(device, given, 256 if args.smoke else 8192, 3 if args.smoke else 50),
        "counter": check_counter(device),
        "run": check_run(device, given),
        "cost": check_cost(),
    }
    out = {
        "command": " ".join(["python", *sys.argv]),
        "commit": args.commit,
        "definitions": DEFINITIONS,
        "hardware": "cpu" if args.smoke else torch.cuda.get_device_name(),
        "versions": {p: metadata.version(p) for p in ("torch", "transformers", "peft")}
        | {"python": platform.python_version()},
        "checks": checks,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "gpu_measure.json").write_text(json.dumps(out, indent=1))
    for name, check in checks.items():
        shown = {key: value for key, value in check.items() if key in SHOWN}
        print(f"{name:8} {'ok' if check['ok'] else 'FAILED':7} {shown}")
    return 0 if all(check["ok"] for check in checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
