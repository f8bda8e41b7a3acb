"""Dynotune beside other trainers, a row of the baseline in one call: the same documents, each arm a process of its own.

    python -m benchmarks.peers --row packed-16k --shared SHARED --out results/
    python -m benchmarks.peers --rows all --budget 900 --shared SHARED --out results/
    python -m benchmarks.peers --list

Called again, it goes on where it was: what the same commit, machine and settings have in `results/` is not measured again
without `--again`. An interruption loses the arm that ran. TRL's `flash_attention_2` needs a package without a wheel:
`--flash-attn FOLDER` puts a stand-in that calls the FlashAttention-2 inside PyTorch on the path of TRL's arms.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.peers.arm import MARK
from benchmarks.peers.keep import ROOT, Kept, commit_of_tree, key_of, provenance, settings_of, without_folders
from benchmarks.peers.published import QUOTES
from benchmarks.peers.rows import ROWS, who

PATIENCE = 4
"""Times its expected seconds an arm may take. What is still not there did not finish, and that is the result."""

BESIDE = ("unsloth",)
"""Peers that most who measure do not have: their arms are skipped where they are not installed."""


def missing(arm: str, settings: Mapping[str, Any], flash_attn: Path | None, gpu: bool) -> str | None:
    """What an arm needs and this machine has not, or None."""
    if who(arm) in BESIDE:
        if importlib.util.find_spec(who(arm)) is None:
            return f"{who(arm)} is not installed"
        if not gpu:
            return f"{who(arm)} needs a GPU"
    if settings.get("use_liger_kernel") and importlib.util.find_spec("liger_kernel") is None:
        return "liger-kernel is not installed"
    if settings.get("attn") == "flash_attention_2":
        if not gpu:
            return "FlashAttention-2 needs a GPU"
        if flash_attn is None and importlib.util.find_spec("flash_attn") is None:
            return "flash-attn is not installed; --flash-attn FOLDER takes a stand-in"
    return None


def run_arm(row: str, arm: str, args: argparse.Namespace) -> dict[str, Any]:
    """In a process of its own: its figures, or `failed` with the end of what it said."""
    stand_in = args.flash_attn if who(arm) != "dynotune" else None
    paths = [str(path) for path in (stand_in, ROOT / "src", ROOT) if path]
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "UNSLOTH_DISABLE_STATISTICS": "1"}
    # Trainers that it writes would lie in the folder in which we were started.
    env["UNSLOTH_COMPILE_LOCATION"] = str(Path(tempfile.gettempdir()) / "unsloth_compiled_cache")
    env["PYTHONPATH"] = ":".join(filter(None, [*paths, env.get("PYTHONPATH", "")]))
    asked = ["--row", row, "--arm", arm, *(["--dry"] if args.dry else [])]
    asked += ["--shared", str(args.shared)] if args.shared else []
    limit = PATIENCE * ROWS[row].arms[arm].seconds
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.peers.arm", *asked],
            capture_output=True, text=True, env=env, check=False, timeout=limit,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"failed": f"did not finish in {limit} s"}
    words = {"SHARED": args.shared, "STANDIN": args.flash_attn, "OUT": args.out}
    found = result_of(done.stdout, words) if done.returncode == 0 else None
    if found is not None:
        return found
    return {"failed": without_folders((done.stdout + done.stderr)[-4000:], words)}


def result_of(output: str, words: Mapping[str, Path | None] = MappingProxyType({})) -> dict[str, Any] | None:
    """What an arm's process printed of itself, if it did; `words` in the place of folders."""
    lines = [line for line in output.splitlines() if line.startswith(MARK)]
    return dict(json.loads(without_folders(lines[-1].removeprefix(MARK), dict(words)))) if lines else None


def run_rows(names: Sequence[str], args: argparse.Namespace) -> int:
    """Every arm that is not there yet. 0: all there or skipped with a reason; 1: some failed or had no time left."""
    import torch

    began, gpu, short = time.monotonic(), torch.cuda.is_available(), 0
    commit = args.commit or commit_of_tree()
    for name in names:
        kept, origin = Kept(args.out, name), provenance(name, commit, args.flash_attn is not None)
        for arm, asked in ROWS[name].arms.items():
            if args.only not in arm:
                continue
            settings = settings_of(name, arm, args.dry)
            key = key_of(origin, settings)
            left = args.budget - (time.monotonic() - began) if args.budget else None
            if not args.again and kept.done(arm, key, commit):
                print(f"{name:14} {arm:55} is there", flush=True)
            elif reason := missing(arm, asked.settings, args.flash_attn, gpu):
                print(f"{name:14} {arm:55} skipped: {reason}", flush=True)
            elif left is not None and left < asked.seconds:
                short = 1
                print(f"{name:14} {arm:55} not run: {asked.seconds} s expected, {max(0, left):.0f} s left", flush=True)
            else:
                result = run_arm(name, arm, args)
                kept.put(arm, key, origin, settings, result)
                short |= "failed" in result
                print(f"{name:14} {arm:55} {_said(result)}", flush=True)
    return short


def _said(result: Mapping[str, Any]) -> str:
    if "failed" in result:
        return f"failed: {result['failed'].strip().splitlines()[-1][-200:] if result['failed'].strip() else 'no word'}"
    if "pairs_per_second" in result:
        rate = f"{result['pairs_per_second']:8.1f} pairs/s"
    else:
        rate = f"{result['real_tokens_per_second']:10,.0f} real tok/s"
    return f"{result['ms_per_step']:9.1f} ms {rate} {result['peak_gib']:6.1f} GiB"


def listing() -> str:
    """Rows with their arms and the seconds that each is expected to take on an H200, and what is only quoted."""
    lines = []
    for name, row in ROWS.items():
        lines.append(f"{name:14} {row.seconds:4} s  {row.holds}")
        for arm, one in row.arms.items():
            lines.append(f"{'':14} {one.seconds:4} s    {arm}{f' ({one.note})' if one.note else ''}")
    absent = [other for other in BESIDE if importlib.util.find_spec(other) is None]
    lines += [f"{other}: not installed: its arms are skipped" for other in absent]
    lines += [
        f"published, not measured here: {q.who}, {q.work}, {q.hardware}: {q.tokens:,} tok/s a GPU" for q in QUOTES
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", "--rows", dest="rows", default="", help="names with commas, or `all`")
    parser.add_argument("--shared", type=Path, help="the folder with `data` and `tokenizers`: for rows of a data set")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--flash-attn", type=Path, help="a folder with a `flash_attn` package for peers' arms")
    parser.add_argument("--only", default="", help="arms whose name has this in it")
    parser.add_argument("--budget", type=float, help="seconds; an arm that is expected to take longer is not begun")
    parser.add_argument("--again", action="store_true", help="measure also what is there")
    parser.add_argument("--commit", default="", help="of the tree, where it is not a git checkout")
    parser.add_argument(
        "--dry", action="store_true", help="a rehearsal on a CPU: a tiny model, two steps, no measurement"
    )
    parser.add_argument("--list", action="store_true", help="the rows, and the seconds that they take")
    args = parser.parse_args(arguments)
    if args.list:
        print(listing())
        return 0
    names = list(ROWS) if args.rows == "all" else [name for name in args.rows.split(",") if name]
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    if not names:
        parser.error("--row NAME or --rows all says what to measure; --list names them")
    import torch

    if torch.cuda.is_available() == args.dry:
        parser.error("a measurement needs a GPU, and a rehearsal (--dry) goes without one")
    for key in ("shared", "flash_attn", "out"):
        if (path := getattr(args, key)) is not None:
            setattr(args, key, path.resolve())
    return run_rows(names, args)


if __name__ == "__main__":
    sys.exit(main())
