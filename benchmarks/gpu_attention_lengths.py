"""What a new length costs PyTorch's attention: `scaled_dot_product_attention` by backend, first and later calls.

    python benchmarks/gpu_attention_lengths.py --out results/ --commit COMMIT

Causal, a batch of one, 28 heads of 128 in bfloat16, forward and backward, on the host's clock with the device waited for.
Each of the lengths is called five times: the first call has not seen it, the last three are what it costs from then on.
`default` is what PyTorch takes by itself. Backends run in turn over the same lengths, each behind one call of another
length, so that libraries are loaded; cuDNN once more in a process with TORCH_CUDNN_SDPA_AVOID_RECOMPILE=1. `--cpu` runs
tiny shapes, to test the script itself.

Prediction: a call of 200 to 2,000 tokens has 1 to 60 GFLOP, less than 0.3 ms, so the host's 0.2 ms decide; two plans of
cuDNN at some 40 ms each, 80 ms for a new length by what stood still in an attribution (2.6 s for 32 documents).
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

LENGTHS, CALLS, HEADS, DIM = 24, 5, 28, 128
AVOID = "TORCH_CUDNN_SDPA_AVOID_RECOMPILE"
BACKENDS = {
    "default": None, "cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the JSON")
    parser.add_argument("--commit", default="")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    device = torch.device("cpu" if args.cpu else "cuda")
    lengths = np.random.default_rng(7).permutation(np.arange(200, 2000))[:LENGTHS].tolist()
    if args.cpu:
        lengths = [20 + at for at in range(4)]
    if args.child:
        print(json.dumps(timed(args.child, lengths, device)))
        return
    names = ["default"] if args.cpu else list(BACKENDS)
    rows = {name: in_a_process(name, args) for name in names}
    if not args.cpu:
        rows["cudnn, plans avoided"] = in_a_process("cudnn", args, {AVOID: "1"})
    result = {
        "command": " ".join(["python", *sys.argv]), "commit": args.commit, "lengths": lengths, "rows": rows,
        "hardware": torch.cuda.get_device_name() if not args.cpu else "cpu",
        "versions": {
            "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "python": platform.python_version(),
        },
    }  # fmt: skip
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "attention_lengths.json").write_text(json.dumps(result, indent=1))
    for name, row in rows.items():
        print(f"{name:22} new length {row['new_ms']:8.2f} ms   known {row['known_ms']:6.2f} ms   {row['kernels']}")


def in_a_process(name: str, args: argparse.Namespace, variables: dict[str, str] | None = None) -> dict[str, Any]:
    """A backend's figures, in a process that knows no plan yet."""
    words = [sys.executable, __file__, "--out", str(args.out), "--child", name, *(["--cpu"] if args.cpu else [])]
    environment = {**{key: value for key, value in os.environ.items() if key != AVOID}, **(variables or {})}
    ended = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def timed(name: str, lengths: list[int], device: torch.device) -> dict[str, Any]:
    """Milliseconds of calls: `new_ms` and `known_ms` are medians over the lengths."""
    call(name, 2100, device)
    new, known = [], []
    for length in lengths:
        took = [call(name, length, device) for _ in range(CALLS)]
        new.append(took[0])
        known.append(statistics.median(took[2:]))
    return {
        "new_ms": round(statistics.median(new), 3), "known_ms": round(statistics.median(known), 3),
        "each_new_ms": [round(one, 3) for one in new], "each_known_ms": [round(one, 3) for one in known],
        "kernels": kernels(name, lengths[0], device),
    }  # fmt: skip


def call(name: str, length: int, device: torch.device) -> float:
    """Milliseconds of a forward and a backward pass."""
    q, k, v = (
        torch.randn(1, HEADS, length, DIM, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)
    )
    gradient = torch.randn_like(q)
    wait(device)
    began = time.perf_counter()
    backend = BACKENDS[name]
    if backend is None:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        with sdpa_kernel(backend):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    out.backward(gradient)
    wait(device)
    return (time.perf_counter() - began) * 1e3


def kernels(name: str, length: int, device: torch.device) -> str:
    """The longest kernel of a call, which shows what ran."""
    if device.type == "cpu":
        return ""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        call(name, length, device)
    by_time = sorted(seen.key_averages(), key=lambda one: -one.self_device_time_total)
    return by_time[0].key[:60] if by_time else ""


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
