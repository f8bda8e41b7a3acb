"""`dynotune profile` on a GPU: a packed run of ours with LoRA on the 7B shape, and what the profile must say of it.

    python benchmarks/gpu_profile.py --output OUT [--commit COMMIT] [--steps 12] [--layers 28] [--seconds 95] [--tiny]

Random weights, documents of lognormal length (median 200), 16,384 tokens a step: the run of the first row of what peers were
compared by. Arms: `as it comes`; `reads`, with a callback that reads a value every step and so makes the host wait (the
negative control of a clean run); and, where time is left, `no prefetch`. Below 100 seconds on an H200: an arm loads and
warms up in about 25 s, takes 12 steps of 0.9 s and three traced ones of 1-2 s.

Checked, and the exit code is 1 where one fails: classes add up to the step within 1e-6; below 2 % of the step in kernels
that no rule knows; GEMM is the largest class and at most 1.6 times its floor; the traced steps are below 1.5 times as long
as the timed ones; a kept calibration is read in 0.1 s; `reads` is named. Not judged but kept: every class with its floor,
the ceilings, the remedies with their ceilings, what is expected. JSON: commit, command, hardware, versions, spread. It is
written before the first arm and behind each; an arm for which there is no time in `--seconds`, by what the one before it
took, is left out and said to be; a record is kept before it is read. `--tiny` rehearses it on the CPU, where only the first
check is made.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
import traceback
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from rich.console import Console
from transformers import TrainerCallback

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.tiny import tiny_tokenizer

from benchmarks.gpu_engagement import LORA, SHAPE, SMALL
from benchmarks.whole_file import write_json
from dynotune import SFTConfig
from dynotune.measure.calibration import ceilings_of
from dynotune.measure.kernel_classes import IDLE, Work
from dynotune.profile.analysis.analyse import analyse
from dynotune.profile.analysis.breakdown import Breakdown, breakdown_of
from dynotune.profile.analysis.findings import Findings
from dynotune.profile.observing.own import Asked, observe
from dynotune.profile.records.record import Record
from dynotune.profile.records.record_file import write_record
from dynotune.profile.showing.keep import as_json, keep
from dynotune.speedups.machine import machine_of
from dynotune.train.start.given import Given

TOKENS = 16_384
UNKNOWN, NEAR, SLOWDOWN, CACHED = 0.02, 1.6, 1.5, 0.1


class Reads(TrainerCallback):
    """What people write into loops."""

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        next(p for p in model.parameters() if p.requires_grad).sum().item()


def config_of(folder: Path, tiny: bool, layers: int, **more: Any) -> SFTConfig:
    """One run, in files as a user has them."""
    shape = {**(SMALL if tiny else SHAPE), "num_hidden_layers": layers}
    model, rows = folder / "model", folder / "rows.jsonl"
    model.mkdir(exist_ok=True)
    tiny_tokenizer().save_pretrained(model)
    (model / "config.json").write_text(json.dumps(shape))
    rng = np.random.default_rng(17)
    lengths = np.clip(rng.lognormal(np.log(20 if tiny else 200), 0.9, 600), 8, 128 if tiny else 4096).astype(int)
    rows.write_text("".join(json.dumps({"input_ids": rng.integers(5, 340, n).tolist()}) + "\n" for n in lengths))
    return SFTConfig(
        model_name_or_path=str(model), random_weights=True, dataset_name=str(rows), max_length=4096,
        per_device_train_batch_size=8 if tiny else TOKENS // 300, logging_steps=10, report_to="none", use_cpu=tiny,
        **({} if tiny else {"bf16": True}), **LORA, **more,
    )  # fmt: skip


def observed(config: SFTConfig, steps: int, reads: bool) -> Record:
    """reads: with the callback. The command has no way to give one, so it is put where runs take theirs from."""
    if not reads:
        return observe(config, Asked(steps), Console(quiet=True))
    with patch("dynotune.profile.observing.own.Given", lambda callbacks: Given(callbacks=[*callbacks, Reads()])):
        return observe(config, Asked(steps), Console(quiet=True))


def checks_of(name: str, findings: Findings, breakdown: Breakdown) -> dict[str, bool]:
    """By what is promised. name: of the arm."""
    row = breakdown.row(Work.GEMM)
    total = sum(one.seconds for one in findings.rows)
    checks = {"adds up": abs(total / findings.step_seconds - 1) < 1e-6}
    if breakdown.on_device:
        unknown = breakdown.share(Work.OTHER)
        checks |= {
            "kernels are known": unknown < UNKNOWN,
            "GEMM is the largest": findings.rows[0].work is Work.GEMM,
            "GEMM is near its floor": row.floor is not None and row.seconds < NEAR * row.floor,
            "tracing is cheap": (findings.profiler_slowdown or 9.0) < SLOWDOWN,
        }
        names = [one.name for one in findings.found]
        checks["reads are named" if name == "reads" else "no reads"] = ("host-reads" in names) == (name == "reads")
    return checks


def arm(name: str, config: SFTConfig, steps: int, out: Path) -> dict[str, Any]:
    began = time.perf_counter()
    record = observed(config, steps, name == "reads")
    took = time.perf_counter() - began
    folder = out / name.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    write_record(record, folder / "observed.json.gz")  # whatever becomes of its reading
    began = time.perf_counter()
    findings, breakdown = analyse(record), breakdown_of(record)
    analysed = time.perf_counter() - began
    assert breakdown is not None
    files = keep(record, findings, folder)
    # Of the kernels as they were traced, before they are put on the scale of the timed steps.
    idle = breakdown.share(*IDLE)
    return {
        "seconds": round(took, 1),
        "analysing_seconds": round(analysed, 2),
        "checks": checks_of(name, findings, breakdown),
        "idle_share": idle,
        "bytes": {Path(file).name: Path(file).stat().st_size for file in files},
        "profile": as_json(record, findings),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--commit", default="")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--arms", default="as it comes,reads")
    parser.add_argument("--seconds", type=float, default=600.0, help="that may pass in all")
    args = parser.parse_args()
    started = time.perf_counter()
    device = torch.device("cpu" if args.tiny else "cuda")
    layers = args.layers or (2 if args.tiny else 28)
    kept = args.output / "gpu_profile.json"
    key = machine_of(device).key
    ceilings = ceilings_of(device, key, anew=True)
    began = time.perf_counter()
    ceilings_of(device, key)
    cached = time.perf_counter() - began
    result: dict[str, Any] = {
        "command": f"python benchmarks/gpu_profile.py --output OUT --steps {args.steps} --layers {layers}",
        "commit": args.commit,
        "hardware": torch.cuda.get_device_name() if not args.tiny else platform.processor(),
        "versions": {name: metadata.version(name) for name in ("torch", "transformers", "peft")},
        "ceilings": {
            "matmul": dict(ceilings.matmul), "memory": ceilings.memory, "to_device": ceilings.to_device,
            "launch": ceilings.launch, "note": ceilings.note, "cached_seconds": cached,
        },
        "checks": {"a kept calibration is read at once": cached < CACHED},
        "arms": {},
    }  # fmt: skip
    longest = 0.0
    write_json(kept, result)
    for name in args.arms.split(","):
        if time.perf_counter() - started + longest > args.seconds:
            result["arms"][name] = {"error": f"no time was left for it ({longest:.0f} s)", "checks": {"ran": False}}
            print(f"{name}: left out, no time")
            continue
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            more = {"speedups": {"prefetch": "off"}} if name == "no prefetch" else {}
            config = config_of(Path(folder), args.tiny, layers, **more)
            try:
                result["arms"][name] = arm(name, config, args.steps, args.output)
            except Exception as error:  # noqa: BLE001 - what was measured so far and the other arm are worth more
                told = "".join(traceback.format_exception(error))[-4000:]
                result["arms"][name] = {"error": told, "checks": {"ran": False}}
                print(told)
        longest = max(longest, time.perf_counter() - began)
        write_json(kept, result)
        print(name, json.dumps(result["arms"][name]["checks"]), f"{time.perf_counter() - began:.0f} s", flush=True)
    every = [result["checks"], *(one["checks"] for one in result["arms"].values())]
    result["ok"] = all(all(one.values()) for one in every)
    write_json(kept, result)
    print("ok" if result["ok"] else "FAILED")
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
