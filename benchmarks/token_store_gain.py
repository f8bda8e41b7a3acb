"""What the token store saves a run of two epochs, against tokenising at every start.

    python benchmarks/token_store_gain.py --shared SHARED --out results.json [--rows 4000] [--repeats 3] [--use-cpu]

A real run (`dynotune sft`) over the first rows of `sft/sft_mix.jsonl.gz` with the tokenizer `qwen-152k` and a small Llama
from random weights, two epochs, each in a fresh process: with `token_cache: off`, with the store empty, and with the store
filled. The losses must be the same. The gain of a large model in seconds is the same; in percent it is smaller, because its
steps take longer.
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
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

SIDES = ("off", "built", "hit")


def make_model(folder: Path, tokenizer: Path) -> None:
    """A small Llama with the tokenizer's vocabulary, from random weights."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    words = AutoTokenizer.from_pretrained(tokenizer)
    LlamaForCausalLM(
        LlamaConfig(
            hidden_size=256,
            intermediate_size=704,
            num_hidden_layers=6,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=152064,
            tie_word_embeddings=True,
        )
    ).save_pretrained(folder)
    words.save_pretrained(folder)


def run(side: str, data: Path, model: Path, folder: Path, cache: Path, args: argparse.Namespace) -> dict[str, Any]:
    command = [
        sys.executable, "-m", "dynotune", "sft", "--json",
        "--model_name_or_path", str(model), "--dataset_name", str(data), "--output_dir", str(folder),
        "--num_train_epochs", "2", "--max_length", "1024", "--per_device_train_batch_size", "64",
        "--learning_rate", "1e-4", "--save_strategy", "no", "--logging_steps", "10",
        "--use_cpu", "true" if args.use_cpu else "false", "--disable_tqdm", "true",
        "--token_cache", "off" if side == "off" else "auto",
    ]  # fmt: skip
    if args.steps:
        command += ["--max_steps", str(args.steps)]
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
        "train_s": json.loads((folder / "summary.json").read_text())["train_seconds"],
        "loss": next(row["loss"] for row in metrics if "loss" in row),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--steps", type=int, help="fewer steps than two epochs, for a look")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--use-cpu", action="store_true")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    import torch

    from dynotune.data.workers.cores import usable_cores

    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "rows.jsonl"
        with gzip.open(args.shared / "data/sft/sft_mix.jsonl.gz", "rt") as file:
            data.write_text("".join(islice(file, args.rows)))
        model = Path(place) / "model"
        make_model(model, args.shared / "tokenizers/qwen-152k")
        for repeat in range(args.repeats):
            for side in SIDES:
                folder, cache = Path(place) / f"run-{repeat}-{side}", Path(place) / f"cache-{repeat}"
                runs[side].append(run(side, data, model, folder, cache, args))
                print(f"{side}: {json.dumps(runs[side][-1])}", file=sys.stderr)
    losses = [one["loss"] for some in runs.values() for one in some]
    assert max(losses) - min(losses) < 1e-3 * losses[0], f"the tokens are not the same: {losses}"
    median = {side: statistics.median(one["whole_s"] for one in some) for side, some in runs.items()}
    result = {
        "what": "whole wall time of a run of two epochs: token store against tokenising at the start",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": args.rows,
        "commit": args.commit,
        "command": " ".join(Path(word).name if "/" in word else word for word in sys.argv),
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() and not args.use_cpu else "CPU",
        "cores": usable_cores(),
        "versions": {name: version(name) for name in ("torch", "transformers", "tokenizers")},
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
