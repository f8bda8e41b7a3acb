"""Step graphs in real runs: the same losses as launched one by one, and what they save. One call, about 150 s.

    python -m benchmarks.gpu_step_graphs --out OUT [--cases "2 documents,16 documents"] [--commit COMMIT]     on the GPU
    python -m benchmarks.gpu_step_graphs --out OUT --dry                                                      on the CPU

Runs of `benchmarks.peers`, with clipping, logging and a learning rate: launched and replayed; where these differ launched
again, whose distance from the first is the noise of attention that sums in any order. OUT/gpu_step_graphs.json is written
after each run.

Prediction (`h200_levers.json`: 320 tokens 153 ms launched, 28 replayed; 2,176 tokens 159 and 121): 2 documents 25 to 30 ms,
16 documents 115 to 125; a model of 23M at 2 documents, launched at 23 ms, under 5.
"""

import argparse
import gc
import math
import statistics
import sys
import time
import traceback
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers.arm import measure
from benchmarks.peers.rows import OURS, ROWS, Arm, Row
from benchmarks.whole_file import write_json

GRAPHS, NONE = {"step_graphs": "on"}, {"step_graphs": "off"}
LEAST = 1e-5
"""Relative, of a loss."""

EXACT = {"attention_fa3": "off"}
"""With PyTorch's own attention, which sums in one order here, so that runs can be held against each other to the bit."""


def _of(name: str, **changes: Any) -> Row:
    return replace(ROWS[name], window=10, windows=4, warm_up=3, **changes)


CASES: dict[str, tuple[Row, dict[str, str]]] = {
    "2 documents": (_of("2-documents"), {}),
    "16 documents": (_of("16-documents"), {}),
    "2 documents, exact attention": (_of("2-documents"), EXACT),
    "23M in full, 2 documents": (
        _of("23m-full-8", content={"max_length": 1024, "per_device_train_batch_size": 2}), EXACT,
    ),
    "23M in full, 16 documents": (
        _of("23m-full-8", content={"max_length": 1024, "per_device_train_batch_size": 16}), EXACT,
    ),
}  # fmt: skip
"""A row, and speed-ups of both sides."""


def run(row: Row, speedups: dict[str, str], dry: bool) -> dict[str, Any]:
    """Figures of one run of ours."""
    settings = {**OURS, **({} if row.lora else {"weights": "float32"}), "speedups": speedups}
    result = measure(replace(row, arms={"dynotune": Arm(0, settings)}), "dynotune", None, dry)
    kept = ("seconds", "losses", "grad_norms", "peak_gib", "tokens", "all_seconds", "first_step_seconds")
    gc.collect()  # the model of the run before must not stand in the next one's memory
    torch.cuda.empty_cache()
    return {name: result[name] for name in kept if name in result}


def off(found: list[float], right: list[float]) -> float:
    """The largest distance, relative; infinite where something is not finite."""
    gaps = [abs(f - r) / abs(r) for f, r in zip(found, right, strict=True)]
    return max(gap if math.isfinite(gap) else math.inf for gap in gaps)


def are_the_same(runs: dict[str, Any]) -> bool:
    """Whether replaying gave the losses of launching, without noise being known."""
    both = runs["launched"], runs["replayed"]
    return not any("failed" in one for one in both) and off(both[1]["losses"], both[0]["losses"]) <= LEAST


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cases", default=",".join(name.replace(",", ";") for name in CASES))
    parser.add_argument("--budget", type=float, default=1e9, help="seconds, after which no case begins")
    parser.add_argument("--commit", default="")
    parser.add_argument("--dry", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    began, failed = time.monotonic(), 0
    result: dict[str, Any] = {
        "command": " ".join(["python", "-m", "benchmarks.gpu_step_graphs", *sys.argv[1:]]), "commit": args.commit,
        "hardware": "CPU, a rehearsal" if args.dry else torch.cuda.get_device_name(),
        "versions": {name: metadata.version(name) for name in ("torch", "transformers", "peft")}, "cases": {},
    }  # fmt: skip
    for name in (name.replace(";", ",") for name in args.cases.split(",")):
        if time.monotonic() - began > args.budget:
            print(f"{name}: not begun")
            continue
        row, common = CASES[name]
        runs = result["cases"][name] = {}
        launched = {**common, **({} if args.dry else NONE)}
        sides = {"launched": launched, "replayed": {**common, **({} if args.dry else GRAPHS)}, "again": launched}
        for side, speedups in sides.items():
            if side == "again" and are_the_same(runs):
                continue  # there is no noise to be known
            try:
                runs[side] = run(row, speedups, args.dry)
            except Exception:  # noqa: BLE001 - the other cases are worth the card's time
                runs[side] = {"failed": traceback.format_exc()[-3000:]}
                print(runs[side]["failed"], flush=True)
                failed = 1
            write_json(args.out / "gpu_step_graphs.json", result)
        failed |= not shown(name, row, runs)
        write_json(args.out / "gpu_step_graphs.json", result)
    print(f"{time.monotonic() - began:.0f} s")
    return failed


def shown(name: str, row: Row, runs: dict[str, Any]) -> bool:
    """A line of a case; whether the runs took the same steps."""
    if any("failed" in one for one in runs.values()):
        return False
    ms = {
        side: 1e3 * statistics.median(one["seconds"][row.warm_up :] or one["seconds"]) / row.window
        for side, one in runs.items()
    }
    right = runs["launched"]["losses"]
    gap = off(runs["replayed"]["losses"], right)
    noise = off(runs["again"]["losses"], right) if "again" in runs else 0.0
    norms = off(runs["replayed"]["grad_norms"], runs["launched"]["grad_norms"])
    fine = gap <= max(2 * noise, LEAST)
    runs["verdict"] = {"same": fine, "noise": noise, "losses_off": gap, "norms_off": norms, "ms": ms}
    print(
        f"{'ok ' if fine else 'BAD'} {name:30} "
        + "  ".join(f"{side} {value:.2f} ms {runs[side]['peak_gib']:.1f} GiB" for side, value in ms.items())
        + f"  losses off {gap:.1e} (noise {noise:.1e}), norms {norms:.1e}",
        flush=True,
    )
    return fine


if __name__ == "__main__":
    sys.exit(main())
