"""Step times of a configuration that does the same work each step: the noise of a host, for tests of a bench's statistics.

    python benchmarks/step_noise.py --out tests/bench/data/step_noise_CPU.json [--seconds 45] [--steps 6000] [--layers 2]

It ends after so many steps or seconds, whichever is first, and writes what it has every few seconds, whole each time: who is
cut off has the beginning. On a GPU the times are those between the device's events behind each step. The file holds the
series in order, less the first steps and the one behind each writing; slow steps and drift are what it is for.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.tiny import tiny_model

from benchmarks.whole_file import write_json
from dynotune.environment import cpu_model

WARM_UP = 50
CHUNK = 5.0
"""Seconds between two writings."""


def record(
    steps: int,
    layers: int,
    hidden: int,
    tokens: int,
    device: torch.device,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[list[float]]:
    """Seconds of each step, `CHUNK` seconds of them at a time: forward, backward and AdamW's update of `tokens` tokens."""
    heads = max(4, hidden // 64)
    model = tiny_model(
        "qwen2", num_hidden_layers=layers, hidden_size=hidden, intermediate_size=3 * hidden, head_dim=hidden // heads,
        num_attention_heads=heads, num_key_value_heads=heads, max_position_embeddings=tokens, attn_implementation="sdpa",
    ).to(device, torch.bfloat16 if device.type == "cuda" else torch.float32)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    ids = torch.randint(2, 300, (1, tokens), device=device)

    def step() -> Any:
        """Returns a mark of its end."""
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if device.type != "cuda":
            return clock()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    for _ in range(WARM_UP):
        step()
    taken = 0
    while taken < steps:
        marks, began = [step()], clock()
        while taken < steps and clock() - began < CHUNK:
            marks.append(step())
            taken += 1
        if device.type == "cuda":
            torch.cuda.synchronize()
            yield [a.elapsed_time(b) / 1e3 for a, b in pairwise(marks)]
        else:
            yield [b - a for a, b in pairwise(marks)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--seconds", type=float, default=45.0, help="of steps; loading comes before")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    seconds, began = list[float](), time.perf_counter()
    for chunk in record(args.steps, args.layers, args.hidden, args.tokens, device):
        seconds += chunk
        out = {
            "command": " ".join(["python", *sys.argv]),
            "commit": args.commit,
            "hardware": torch.cuda.get_device_name() if device.type == "cuda" else cpu_model(),
            "threads": torch.get_num_threads(),
            "versions": {name: metadata.version(name) for name in ("torch", "transformers")},
            "tokens": args.tokens,
            "microseconds": [round(1e6 * one) for one in seconds],
        }
        write_json(args.out, out, indent=None)
        print(f"{len(seconds)} steps of {sorted(seconds)[len(seconds) // 2] * 1e3:.3f} ms in {args.out}", flush=True)
        if time.perf_counter() - began > args.seconds - CHUNK:
            break


if __name__ == "__main__":
    main()
