"""`dynotune prepare` beside the work that it cannot do without: rendering, and one batched call of the tokenizer.

    python benchmarks/prepare_throughput.py --shared SHARED --out results.json [--repeats 3] [--tokenizer qwen-152k]

Each side runs as a whole process of its own, in turn, on the same cores (all that this process may use), on
`sft/sft_mix.jsonl.gz`:

- baseline: reads the rows with `json`, renders each with `apply_chat_template`, and gives all texts to the Rust tokenizer in
  one batched call, which takes all cores; no checks, no labels, nothing kept.
- prepare: what `dynotune prepare` does into an empty token store: strict reading, checks, labels, duplicates, ledger, and
  arrays with checksums.
- hit: the same command again.

Two clocks: `whole_s` from the start of the process to its end, and `work_s` from the first row to the last token (of the
baseline: rendering and tokenising alone, without reading). The gate compares work: prepare's, which includes reading, must
take at most 1 / 0.9 of the baseline's. `cpu_s` is processor time of the process and its children: what counts where other
programs use the machine.
"""

import argparse
import gzip
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

SIDES = ("baseline", "prepare", "hit")


def cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def baseline(data: Path, tokenizer_path: Path) -> dict[str, Any]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_path)
    with gzip.open(data, "rt") as file:
        rows = [json.loads(line) for line in file]
    cpu, began = cpu_s(), time.perf_counter()
    texts = [tokenizer.apply_chat_template(row["messages"], tools=row.get("tools"), tokenize=False) for row in rows]
    rendered = time.perf_counter()
    encoded = tokenizer.backend_tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    tokens = sum(len(one.ids) for one in encoded)
    done = time.perf_counter()
    return {"work_s": done - began, "work_cpu_s": cpu_s() - cpu, "render_s": rendered - began, "tokens": tokens}


def prepare(data: Path, tokenizer_path: Path) -> dict[str, Any]:
    from transformers import AutoTokenizer

    from dynotune.config.sft import SFTConfig
    from dynotune.data.load import load_train_and_eval
    from dynotune.data.tokens.encode import Encoder

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_path)
    config = SFTConfig(dataset_name=str(data), max_length=None, disable_tqdm=True)
    cpu, began = cpu_s(), time.perf_counter()
    loaded, _ = load_train_and_eval(config, Encoder(tokenizer, config), None)
    done = time.perf_counter()
    return {
        "work_s": done - began,
        "work_cpu_s": cpu_s() - cpu,
        "tokens": int(loaded.examples.lengths.sum()),
        "store": loaded.store.split(":")[0],
        "packing": loaded.about["packing"],
    }


def in_process(side: str, args: argparse.Namespace, cache: Path) -> dict[str, Any]:
    """One run in a fresh process."""
    command = [sys.executable, __file__, "--side", side, "--shared", str(args.shared), "--tokenizer", args.tokenizer]
    environment = {**os.environ, "DYNOTUNE_CACHE": str(cache), "TOKENIZERS_PARALLELISM": "true", "HF_HUB_OFFLINE": "1"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    whole, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"whole_s": whole, "cpu_s": cpu, **json.loads(done.stdout.splitlines()[-1])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tokenizer", default="qwen-152k")
    parser.add_argument(
        "--side", choices=SIDES, help="run one side here and print its figures (used by the script itself)"
    )
    args = parser.parse_args()
    data, tokenizer = args.shared / "data/sft/sft_mix.jsonl.gz", args.shared / "tokenizers" / args.tokenizer
    if args.side:
        print(json.dumps(baseline(data, tokenizer) if args.side == "baseline" else prepare(data, tokenizer)))
        return

    from dynotune.data.workers.cores import usable_cores

    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for repeat in range(args.repeats):
        with tempfile.TemporaryDirectory() as cache:
            # In turn, and in turned order, so that a machine that slows down slows all.
            first = ("baseline", "prepare") if repeat % 2 == 0 else ("prepare", "baseline")
            for side in (*first, "hit"):
                runs[side].append(in_process(side, args, Path(cache)))
                print(
                    f"{side}: {json.dumps({k: v for k, v in runs[side][-1].items() if k != 'packing'})}",
                    file=sys.stderr,
                )
    median = {
        side: {
            key: statistics.median(run[key] for run in runs[side])
            for key in ("whole_s", "work_s", "cpu_s", "work_cpu_s")
        }
        for side in SIDES
    }
    assert {run["tokens"] for some in runs.values() for run in some} == {runs["hit"][0]["tokens"]}
    assert {run["store"] for run in runs["hit"]} == {"hit"}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True)
    result = {
        "what": "dynotune prepare beside rendering and one batched encode",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "command": " ".join(Path(word).name if "/" in word else word for word in sys.argv),
        "machine": {
            "cores": usable_cores(),
            "processor": platform.processor() or platform.machine(),
            "load_before": os.getloadavg()[0],
        },
        "versions": {name: version(name) for name in ("tokenizers", "transformers", "numpy")}
        | {"python": sys.version.split()[0]},
        "tokens": runs["hit"][0]["tokens"],
        "packing": runs["hit"][0]["packing"],
        "median": median,
        "throughput_over_baseline": {
            key: median["baseline"][key] / median["prepare"][key] for key in ("whole_s", "work_s", "work_cpu_s")
        },
        "gate": {"at_least": 0.9, "met": median["baseline"]["work_s"] / median["prepare"]["work_s"] >= 0.9},
        "runs": runs,
    }
    if args.out:
        args.out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"{'':10}{'whole s':>10}{'work s':>10}{'work CPU s':>12}{'tokens/s of work':>18}")
    for side, figures in median.items():
        rate = result["tokens"] / figures["work_s"]
        print(f"{side:10}{figures['whole_s']:10.2f}{figures['work_s']:10.2f}{figures['work_cpu_s']:12.2f}{rate:18,.0f}")
    ratio = result["throughput_over_baseline"]
    met = result["gate"]["met"]
    print(f"prepare / baseline: {ratio['work_s']:.2f} by work, {ratio['whole_s']:.2f} whole; gate 0.9 met: {met}")


if __name__ == "__main__":
    main()
