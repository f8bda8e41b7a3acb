"""What a checkpoint costs: how long the loop stands still when training waits for the files and when it does not; how fast
checksums are; how long a check takes.

    python -m benchmarks.checkpoints --out DIR [--hidden 1024 --layers 8] [--device cuda]

Prints a short table, and writes `checkpoints.json` into DIR. The rates of steps beside the write are those of this machine's
cores: on a host with few of them the write takes a core from training on the CPU.
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import xxhash
from tests.tiny import tiny_model, tiny_tokenizer

from dynotune.config.keys.saving import SavingConfig
from dynotune.manifest import Manifest, versions
from dynotune.train.checkpoints.checkpoints import Checkpoints
from dynotune.train.state import Progress, Trainee


def trainee_of(hidden: int, layers: int, device: str) -> Trainee:
    """A model with AdamW states, as after a step."""
    model = tiny_model(hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for p in model.parameters():
        p.grad = torch.ones_like(p) * 1e-3
    optimizer.step()
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    return Trainee(model, tiny_tokenizer(), optimizer, schedule, Progress(), {"examples_per_step": 1}, {})


def step(trainee: Trainee, device: str) -> None:
    ids = torch.ones(1, 64, dtype=torch.long, device=device)
    trainee.model(input_ids=ids, labels=ids).loss.backward()
    trainee.optimizer.step()
    trainee.optimizer.zero_grad()


def stall(trainee: Trainee, folder: Path, device: str, beside: bool, saves: int) -> dict[str, Any]:
    """Seconds for which `save` holds the loop, and of a step while a checkpoint is being written."""
    shutil.rmtree(folder, ignore_errors=True)
    keeper = Checkpoints(folder, SavingConfig(save_total_limit=1))
    keeper.in_background = beside
    held, whole, steps = [], [], []
    for number in range(1, saves + 1):
        trainee.progress.step = number
        _settled(device)
        began = time.perf_counter()
        keeper.save(trainee)
        held.append(time.perf_counter() - began)
        while beside and keeper._background.busy:
            at = time.perf_counter()
            step(trainee, device)
            _settled(device)
            steps.append(time.perf_counter() - at)
        keeper.wait()
        whole.append(time.perf_counter() - began)
    written = Manifest.read(keeper.path(saves))
    keeper.close()
    return {
        "stall_first_s": held[0],
        "stall_s": statistics.median(held[1:]),
        "stall_spread_s": [min(held[1:]), max(held[1:])],
        "until_in_place_s": statistics.median(whole[1:]),
        "step_meanwhile_s": statistics.median(steps) if steps else None,
        "bytes": written.total_bytes,
    }


def rates(megabytes: int = 512) -> dict[str, float]:
    """GB/s of processor time, a core."""
    data = os.urandom(megabytes << 20)
    found = {}
    for name, make in {"xxh3_128": xxhash.xxh3_128, "sha256": hashlib.sha256, "blake2b": hashlib.blake2b}.items():
        began = time.process_time()
        make(data).digest()
        found[name] = len(data) / (time.process_time() - began) / 1e9
    return found


def check_rate(trainee: Trainee, folder: Path) -> dict[str, float]:
    """Seconds to verify a checkpoint that the system holds in memory."""
    keeper = Checkpoints(folder, SavingConfig())
    path = keeper.save(trainee)
    manifest = Manifest.read(path)
    began = time.perf_counter()
    assert manifest.damage(path) == []
    seconds = time.perf_counter() - began
    return {"bytes": manifest.total_bytes, "seconds": seconds, "seconds_a_gb": seconds / manifest.total_bytes * 1e9}


def _settled(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--saves", type=int, default=6)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    trainee = trainee_of(args.hidden, args.layers, args.device)
    alone = []
    for _ in range(10):
        at = time.perf_counter()
        step(trainee, args.device)
        _settled(args.device)
        alone.append(time.perf_counter() - at)
    scratch = args.out / "scratch"
    result = {
        "command": f"python -m benchmarks.checkpoints --hidden {args.hidden} --layers {args.layers} --device {args.device}",
        "machine": {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count(), "device": args.device},
        "versions": versions(),
        "model_bytes": sum(p.nbytes for p in trainee.model.parameters()),
        "step_alone_s": statistics.median(alone),
        "waiting": stall(trainee, scratch, args.device, False, args.saves),
        "beside": stall(trainee, scratch, args.device, True, args.saves),
        "gb_a_second": rates(),
        "check": check_rate(trainee, scratch),
    }
    shutil.rmtree(scratch)
    (args.out / "checkpoints.json").write_text(json.dumps(result, indent=1) + "\n")
    waits, beside = result["waiting"], result["beside"]
    print(f"model {result['model_bytes'] / 1e6:.0f} MB, checkpoint {waits['bytes'] / 1e6:.0f} MB, {args.device}")
    print(f"{'':24}{'waiting':>12}{'beside':>12}")
    for name in ("stall_first_s", "stall_s", "until_in_place_s"):
        print(f"{name:24}{waits[name]:12.3f}{beside[name]:12.3f}")
    print(
        f"step alone {result['step_alone_s']:.3f} s, while a checkpoint is written {beside['step_meanwhile_s']:.3f} s"
    )
    print("checksums GB/s a core:", {name: round(rate, 2) for name, rate in result["gb_a_second"].items()})
    print(f"check {result['check']['bytes'] / 1e6:.0f} MB in {result['check']['seconds']:.3f} s")


if __name__ == "__main__":
    main()
