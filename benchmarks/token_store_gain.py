"""What the token store saves a run of two epochs, against tokenising at every start.

    python benchmarks/token_store_gain.py --shared SHARED --out results.json [--rows 4000] [--repeats 3]

A real run (`dynotune sft`, the tiny pretrained model of 260 thousand parameters, so that training weighs as little as it
can) over the first rows of `sft/sft_mix.jsonl.gz`, two epochs, each in a fresh process: with `token_cache: off`, with the
store empty, and with the store filled. The final loss must be the same to the last bit. The gain of a real model in seconds
is the same; in percent it is smaller, because its steps take longer.
"""

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

SIDES = ("off", "built", "hit")


def run(side: str, data: Path, shared: Path, folder: Path, cache: Path, steps: int | None) -> dict[str, Any]:
    command = [
        sys.executable, "-m", "dynotune", "sft", "--json",
        "--model_name_or_path", str(shared / "tiny-lm/stories260K"), "--dataset_name", str(data),
        "--output_dir", str(folder), "--num_train_epochs", "2", "--max_length", "128", "--per_device_train_batch_size", "64",
        "--learning_rate", "1e-4", "--save_strategy", "no", "--logging_steps", "1000", "--use_cpu", "true",
        "--disable_tqdm", "true", "--token_cache", "off" if side == "off" else "auto",
    ]  # fmt: skip
    if steps:
        command += ["--max_steps", str(steps)]
    began = time.perf_counter()
    done = subprocess.run(
        command, env={**os.environ, "DYNOTUNE_CACHE": str(cache)}, capture_output=True, text=True, check=False
    )
    whole = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr}")
    said = next(line for line in done.stderr.splitlines() if "training data: token store: " in line)
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        "whole_s": whole,
        "said": said.split("token store: ")[1].split(";")[0].split(" from ")[0],
        "loss": metrics[-1]["loss"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--steps", type=int, help="fewer steps than two epochs, for a look")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "rows.jsonl"
        with gzip.open(args.shared / "data/sft/sft_mix.jsonl.gz", "rt") as file:
            data.write_text("".join(islice(file, args.rows)))
        for repeat in range(args.repeats):
            for side in SIDES:
                folder, cache = Path(place) / f"run-{repeat}-{side}", Path(place) / f"cache-{repeat}"
                runs[side].append(run(side, data, args.shared, folder, cache, args.steps))
                print(f"{side}: {json.dumps(runs[side][-1])}", file=sys.stderr)
    assert len({one["loss"] for some in runs.values() for one in some}) == 1, "the tokens are not the same"
    median = {side: statistics.median(one["whole_s"] for one in some) for side, some in runs.items()}
    result = {
        "what": "whole wall time of a run of two epochs: token store against tokenising at the start",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": args.rows,
        "load": os.getloadavg()[0],
        "median_whole_s": median,
        "saved_s": median["off"] - median["hit"],
        "building_costs_s": median["built"] - median["off"],
        "runs": runs,
    }
    if args.out:
        args.out.write_text(json.dumps(result, indent=2) + "\n")
    for side, seconds in median.items():
        print(f"{side:8}{seconds:8.2f} s")
    print(f"a hit saves {result['saved_s']:.2f} s a run; building costs {result['building_costs_s']:.2f} s once")


if __name__ == "__main__":
    main()
