"""How long a run of the 7B takes to its first step, part by part, in fresh processes one after the other.

    python -m benchmarks.first_step --out OUT.json [--row packed-16k] [--times 4] [--cold 1] [--src SRC] [--commit COMMIT]
        [--dry]

Each process trains the row's first Dynotune arm as `benchmarks.peers` does, and is asked for `set_up/<part>` of its
`summary.json`: seconds behind loading and before the first step; and for the kernels that Triton compiled or found compiled.
The first `--cold` processes of a tree have a cache of kernels of their own, which is empty; the others share the machine's.
On a machine that has just been started the first process also reads the libraries of CUDA and PyTorch from its disk.
`--src` takes another tree's `src`, to hold a change against what was before it on the same machine; processes of both take
turns. On an H200 a process takes 25 s, the first one 45.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers.__main__ import PATIENCE, result_of
from benchmarks.peers.arm import MARK, measure
from benchmarks.peers.keep import ROOT, commit_of_tree, without_folders
from benchmarks.peers.rows import ROWS, who
from benchmarks.whole_file import write_json
from dynotune.environment import cpu_model


def one(row: str, arm: str, src: Path, dry: bool, kernels: Path | None = None) -> dict[str, Any]:
    """A process: what loading, setting up and its parts took, in seconds; or `failed`. kernels: its own cache of them."""
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    if kernels is not None:
        env["TRITON_CACHE_DIR"] = str(kernels)
    env["PYTHONPATH"] = ":".join(filter(None, [str(src), str(ROOT), env.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "benchmarks.first_step", "--row", row, "--told", arm, *(["--dry"] if dry else [])]
    limit = PATIENCE * ROWS[row].arms[arm].seconds
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"failed": f"did not finish in {limit} s"}
    found = result_of(done.stdout) if done.returncode == 0 else None
    if found is None:
        return {"failed": without_folders((done.stdout + done.stderr)[-4000:], {"SRC": src})}
    summary = found["summary"]
    return {
        "loading": summary["time/loading"],
        "set_up": summary["time/set_up"],
        "first_step": summary["time/first_step"],
        "parts": {key.removeprefix("set_up/"): took for key, took in summary.items() if key.startswith("set_up/")},
        "kernels": found["kernels"],
    }


def told(row: str, arm: str, dry: bool) -> None:
    """In a process of its own: the arm, and what Triton compiled for it: name, seconds, when (seconds of its clock)."""
    kernels: list[dict[str, Any]] = []

    def heard(*, src: Any, metadata: dict[str, Any], metadata_group: Any, times: Any, cache_hit: bool) -> None:
        took = 0.0 if cache_hit else times.total / 1e6
        kernels.append({"name": metadata["name"], "seconds": took, "found": cache_hit, "at": time.perf_counter()})

    try:
        from triton import knobs

        knobs.compilation.listener = heard
    except ImportError:
        pass  # nothing is compiled by it, then
    result = measure(ROWS[row], arm, None, dry)
    print(MARK + json.dumps({**result, "kernels": kernels}), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--told", metavar="ARM", help=argparse.SUPPRESS)
    parser.add_argument("--row", default="packed-16k", choices=ROWS)
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--cold", type=int, default=0, help="how many of them find no kernel compiled")
    parser.add_argument("--src", type=Path, help="of another tree, whose processes take turns with this one's")
    parser.add_argument("--commit", default="", help="of the tree, where it is not a git checkout")
    parser.add_argument("--dry", action="store_true", help="a rehearsal on a CPU, of a tiny model")
    args = parser.parse_args()
    if args.told is not None:
        told(args.row, args.told, args.dry)
        return 0
    if args.out is None:
        parser.error("--out is needed")
    arm = next(name for name in ROWS[args.row].arms if who(name) == "dynotune")
    result: dict[str, Any] = {
        "command": f"python -m benchmarks.first_step --row {args.row} --times {args.times}"
        + (f" --cold {args.cold}" if args.cold else "")
        + (" --src BEFORE" if args.src else ""),
        "commit": args.commit or commit_of_tree(),
        "hardware": cpu_model() if args.dry else torch.cuda.get_device_name(),
        "versions": {name: metadata.version(name) for name in ("torch", "transformers", "peft")},
        "row": args.row,
        "processes": [],
    }
    trees = {"this": ROOT / "src", **({"before": args.src} if args.src else {})}
    for number in range(args.times):
        for tree, src in trees.items():
            with tempfile.TemporaryDirectory() as empty:
                kernels = Path(empty) if number < args.cold else None
                found = {"tree": tree, "number": number, "cold": kernels is not None}
                found |= one(args.row, arm, src, args.dry, kernels)
            result["processes"].append(found)
            write_json(args.out, result)
            if "failed" in found:
                print(found["failed"])
                return 1
            parts = ", ".join(f"{name} {took:.2f}" for name, took in found["parts"].items())
            compiled = [kernel["seconds"] for kernel in found["kernels"] if not kernel["found"]]
            print(
                f"{tree} {number}{' cold' * found['cold']}: set up {found['set_up']:.2f} s, loading {found['loading']:.2f}, "
                f"{len(compiled)} kernels compiled in {sum(compiled):.2f} s: {parts}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
