"""Levers that are not in yet, each beside what runs today: right against float32 first, then timed. One call, 150 s.

    python benchmarks/gpu_levers.py --out OUT [--only graph,lora] [--budget 150]      on the GPU
    python benchmarks/gpu_levers.py --out OUT --rehearse                              tiny shapes on the CPU, no figures

Parts, the ones that decide most first:
- `graph`: forward and backward of the layers as CUDA graphs (`make_graphed_callables`), the head and the update behind them
  as they are, beside the same pass launched one by one: loss and gradients must be equal.
- `lora`: the linears of one layer that share an input, forward and backward: frozen products alone (the floor), PEFT's way,
  ours, frozen products by rows, W of all side by side in one product, and one product with the adapter in it ([W, B] times
  [x, su], [W; A]).
- `head`: loss and gradient at vocabulary 152k by rows of a chunk, beside its two products alone.
- `activation`: adapters' parts added, and their gradients made, by products of their own or in the gated activation's
  kernel, by sizes of its tile.
- `rounding`: gradients of a whole model with and without that, beside float32.
- `update`: clipping and fused AdamW, beside the clipping factor given to AdamW (`grad_scale`) and adapters in one buffer.
Layer kernels beside Liger's and the compiler's are `gpu_liger.py` and `gpu_compile.py`. OUT/gpu_levers.json is written after
each row; the table comes last. The exit code is 1 if a result is wrong or a part fails.
"""

import argparse
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
from benchmarks.levers.activation import activation_rows
from benchmarks.levers.bench import Bench, Row
from benchmarks.levers.graph import graph_rows
from benchmarks.levers.head import head_rows
from benchmarks.levers.lora import lora_rows
from benchmarks.levers.rounding import rounding_rows
from benchmarks.levers.update import update_rows
from benchmarks.whole_file import write_json

PARTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "graph": graph_rows, "lora": lora_rows, "head": head_rows, "update": update_rows,
    "activation": activation_rows, "rounding": rounding_rows,
}  # fmt: skip
SHARES = {"graph": 0.4, "lora": 0.65, "head": 0.8, "update": 0.9, "activation": 0.95, "rounding": 1.0}
"""By which share of the budget a part begins nothing more."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--budget", type=float, default=140)
    parser.add_argument("--commit", default="")
    parser.add_argument("--rehearse", action="store_true")
    args = parser.parse_args()
    began, names = time.monotonic(), args.only.split(",")
    result: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]), "commit": args.commit,
        "hardware": "CPU, a rehearsal" if args.rehearse else torch.cuda.get_device_name(),
        "versions": {name: metadata.version(name) for name in ("torch", "transformers", "peft")}, "rows": [], "failed": {},
    }  # fmt: skip
    for name in names:
        share = SHARES[name] if len(names) > 1 else 1.0
        bench = Bench(args.rehearse, began + (math.inf if args.rehearse else share * args.budget))
        try:
            for row in PARTS[name](bench):
                result["rows"].append(row)
                write_json(args.out / "gpu_levers.json", result)
        except Exception:  # noqa: BLE001 - the other parts are worth the card's time
            result["failed"][name] = traceback.format_exc()[-3000:]
        if not args.rehearse:
            torch.cuda.empty_cache()
    result["seconds"] = time.monotonic() - began
    write_json(args.out / "gpu_levers.json", result)
    return show(result)


def show(result: dict[str, Any]) -> int:
    for row in result["rows"]:
        ways = "  ".join(f"{way} {one['ms']:.2f}" for way, one in row["ways"].items())
        print(
            f"{'ok ' if row['ok'] else 'BAD'} {row['part']:10} {row['case']:26} floor {row['floor_ms']:7.2f}  ms: {ways}"
        )
    for name, why in result["failed"].items():
        print(f"BAD {name} did not end: {why.strip().splitlines()[-1]}")
    print(f"{result['seconds']:.0f} s")
    return int(bool(result["failed"]) or not all(row["ok"] for row in result["rows"]))


if __name__ == "__main__":
    sys.exit(main())
