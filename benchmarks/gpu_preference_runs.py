"""Short DPO runs on a GPU under what no other comparison has: pairs grouped by their prompt, and compiled layers.

    python -m benchmarks.gpu_preference_runs --shared SHARED --out results.json [--layers 4] [--only grouped,compiled]

A few layers of the Qwen2.5-7B shape, LoRA r=32, 32 pairs of `preference_mix.jsonl.gz` a step, in one process. For each run:
what was engaged, the share of tokens that stand once, what was compiled and whether anything was compiled again behind the
warm-up, times and losses. Compiled layers lay the steps out as the first run does, so their losses are to agree with its.
The exit code is 1 where something was demanded and not engaged, compiled again, or losses are further apart than bfloat16.

Prediction: 31 % of the tokens stand once as the rows come, more of them grouped, and a step takes that much less; compiling
takes 4-5 s a graph, and a graph is made for each count of tokens and of keys that meet.
"""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.peers import work
from benchmarks.peers.rows import OURS, ROWS

ROW = replace(ROWS["dpo-mix"], windows=7)
"""Whose pairs are trained on: those of ten steps, of which `STEPS` are taken."""

STEPS, TOKENS, APART = 6, 8192, 5e-3
"""Of a run, of a micro-batch at most, and of losses in bfloat16, relative."""

RUNS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "grouped": {"group_by_prompt": True},
    "compiled": {"speedups": {"compiled_layers": "on"}},
}


def run(settings: dict[str, Any], layers: int, rows: list[Any], tokenizer: Any) -> dict[str, Any]:
    """One run: its figures, or the error that ended it."""
    from dynotune import DPOConfig, train_dpo
    from dynotune.errors import DynotuneError

    began, console = time.perf_counter(), Console(file=StringIO(), width=300)
    common = {**work.common(ROW), **OURS, "max_steps": STEPS, "logging_steps": 1, "micro_batch_tokens": TOKENS}
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = train_dpo(
                DPOConfig(
                    **common, output_dir=f"{folder}/run", on_bad_row="skip",
                    **settings,
                ),
                model=work.model_of(ROW.shape, "sdpa", "bfloat16", num_hidden_layers=layers),
                tokenizer=tokenizer, train_dataset=rows,
                peft_config=work.adapter(), callbacks=[work.same_start()], console=console,
            )  # fmt: skip
            logged = [row for row in done.metrics if "loss" in row]
            found: dict[str, Any] = {
                "losses": [row["loss"] for row in logged],
                "pairs_per_second": [row["pairs_per_second"] for row in logged],
                "layout": json.loads((done.folder / "plan.json").read_text())["layout"],
                "engagement": json.loads((done.folder / "engagement.json").read_text())["rows"],
            }
        except DynotuneError as error:
            found = {"error": str(error)[:1000]}
    said = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    found["said"] = [line for line in said if not line.startswith("step ")]
    return found | {"seconds": time.perf_counter() - began}


def holds(runs: dict[str, dict[str, Any]]) -> bool:
    """No error, everything asked for by name is engaged, and compiled layers learn what the others do."""
    if any("error" in one for one in runs.values()):
        return False
    asked = [row for one in runs.values() for row in one["engagement"] if row["asked"] == "on"]
    losses = [runs[name]["losses"] for name in ("as it comes", "compiled") if name in runs]
    near = all(abs(a - b) <= APART * abs(a) for a, b in zip(*losses, strict=True)) if len(losses) == 2 else True
    return near and all(row["state"] == "engaged" for row in asked)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True, help="the folder with `data/preference` and `tokenizers`")
    parser.add_argument("--out", default="gpu_preference_runs.json")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--only", default="", help="runs beside the first, with commas")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    import torch

    out: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.gpu_preference_runs", *sys.argv[1:]]), "commit": args.commit,
        "hardware": torch.cuda.get_device_name(), "torch": torch.__version__, "layers": args.layers, "runs": {},
    }  # fmt: skip
    tokenizer = work.tokenizer_of(ROW, args.shared)
    rows = work.rows_of(ROW, args.shared, tokenizer)
    for name, settings in RUNS.items():
        if name == "as it comes" or not args.only or name in args.only.split(","):
            out["runs"][name] = found = run(settings, args.layers, rows, tokenizer)
            Path(args.out).write_text(json.dumps(out, indent=1))
            print(name, found.get("error") or (found["losses"], found["pairs_per_second"]), f"{found['seconds']:.0f} s")
            print(*[line for line in found["said"] if "ompil" in line or "stand once" in line], sep="\n", flush=True)
    return int(not holds(out["runs"]))


if __name__ == "__main__":
    sys.exit(main())
