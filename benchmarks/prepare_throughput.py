"""`dynotune prepare` beside the work that it cannot do without: rendering, and one batched call of the tokenizer.

    python benchmarks/prepare_throughput.py --shared SHARED --out results.json [--cores 2,4,16] [--repeats 2]

Each side runs as a whole process of its own, in turn, on the same cores (as many of those that this process may use as
`--cores` says, for each of its numbers; all of them without), on `sft/sft_mix.jsonl.gz`:

- baseline: reads the rows with `json`, renders each with `apply_chat_template`, and gives all texts to the Rust tokenizer in
  one batched call, which takes all cores; no checks, no labels, nothing kept.
- prepare: what `dynotune prepare` does into an empty token store: strict reading, checks, labels, duplicates, ledger, and
  arrays with checksums.
- hit: the same command again.

Two clocks: `whole_s` from the start of the process to its end, and `work_s` from the first row to the last token (of the
baseline: rendering and tokenising alone, without reading). The gate compares work: prepare's, which includes reading, must
take at most 1 / 0.9 of the baseline's. `cpu_s` is processor time of the process and its children: what counts where other
programs use the machine; of the work, `own_cpu_s` is that of the process and `children_cpu_s` that of its children.

Of preparing, two figures tell a fixed cost from a rate: `first_chunk_s`, from the start of the work to its first rows, and
`steady_rows_per_s`, between 20 % and 90 % of the rows. `how` says what encoded them (copies of the process, other programs,
or its threads), and `threads_before` names the threads that the process had before.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import Any

SIDES = ("baseline", "prepare", "hit")


def cpu_s() -> tuple[float, float]:
    """Of this process, and of those of its children that have ended."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


def since(before: tuple[float, float]) -> dict[str, float]:
    own, children = (now - then for now, then in zip(cpu_s(), before, strict=True))
    return {"work_cpu_s": own + children, "own_cpu_s": own, "children_cpu_s": children}


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
    return {"work_s": done - began, **since(cpu), "render_s": rendered - began, "tokens": tokens, "rows": len(rows)}


@contextmanager
def watched() -> Iterator[dict[str, Any]]:
    """Yields what becomes known of preparing while it runs: when how many rows were done, and by whom."""
    from dynotune.data import ingest
    from dynotune.data.workers import encode

    seen: dict[str, Any] = {"done": [], "how": "threads"}

    @contextmanager
    def progress(title: str, show: bool) -> Iterator[Callable[[int], None]]:
        yield lambda rows: seen["done"].append((time.perf_counter(), rows))

    def enter(pool: encode.Pool) -> encode.Pool:
        entered = started(pool)
        seen["how"] = "copies" if pool.is_copy else "programs"
        return entered

    started, shown = encode.Pool.__enter__, ingest.loading_progress
    encode.Pool.__enter__, ingest.loading_progress = enter, progress  # type: ignore[method-assign, assignment]
    try:
        yield seen
    finally:
        encode.Pool.__enter__, ingest.loading_progress = started, shown  # type: ignore[method-assign]


def pace(done: list[tuple[float, int]], began: float) -> dict[str, float]:
    """From when how many rows were done. Nothing where none were: the store had them."""
    if not done:
        return {}
    at, rows = [when for when, _ in done], list(accumulate(rows for _, rows in done))
    first, last = (next(i for i, n in enumerate(rows) if n >= share * rows[-1]) for share in (0.2, 0.9))
    steady = {"steady_rows_per_s": (rows[last] - rows[first]) / (at[last] - at[first])} if last > first else {}
    return {"first_chunk_s": at[0] - began, "last_chunk_s": at[-1] - began, **steady}


def thread_names() -> list[str]:
    tasks = Path("/proc/self/task")
    return [(task / "comm").read_text().strip() for task in tasks.iterdir()] if tasks.exists() else []


def prepare(data: Path, tokenizer_path: Path) -> dict[str, Any]:
    from transformers import AutoTokenizer

    from dynotune.config.sft import SFTConfig
    from dynotune.data.load import load_train_and_eval
    from dynotune.data.tokens.encode import Encoder

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_path)
    config = SFTConfig(dataset_name=str(data), max_length=None, disable_tqdm=True)
    threads = thread_names()
    with watched() as seen:
        cpu, began = cpu_s(), time.perf_counter()
        loaded, _ = load_train_and_eval(config, Encoder(tokenizer, config), None)
        done = time.perf_counter()
    return {
        "work_s": done - began,
        **since(cpu),
        **pace(seen["done"], began),
        "how": seen["how"] if seen["done"] else "hit",
        "threads_before": threads,
        "tokens": int(loaded.examples.lengths.sum()),
        "store": loaded.store.split(":")[0],
        "packing": loaded.about["packing"],
    }


def in_process(side: str, args: argparse.Namespace, cache: Path, cores: set[int]) -> dict[str, Any]:
    """One run in a fresh process, which may use these cores."""
    command = [sys.executable, __file__, "--side", side, "--shared", str(args.shared), "--tokenizer", args.tokenizer]
    command += ["--only-cores", ",".join(map(str, sorted(cores)))]
    environment = {**os.environ, "DYNOTUNE_CACHE": str(cache), "TOKENIZERS_PARALLELISM": "true", "HF_HUB_OFFLINE": "1"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    whole, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"whole_s": whole, "cpu_s": cpu, **json.loads(done.stdout.splitlines()[-1])}


KEYS = ("whole_s", "work_s", "cpu_s", "work_cpu_s", "own_cpu_s", "children_cpu_s")


def measured(args: argparse.Namespace, cores: set[int]) -> dict[str, Any]:
    """Both sides and a hit on these cores."""
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for repeat in range(args.repeats):
        with tempfile.TemporaryDirectory() as cache:
            # In turn, and in turned order, so that a machine that slows down slows all.
            first = ("baseline", "prepare") if repeat % 2 == 0 else ("prepare", "baseline")
            for side in (*first, "hit"):
                runs[side].append(in_process(side, args, Path(cache), cores))
                shown = {key: value for key, value in runs[side][-1].items() if key != "packing"}
                print(f"{len(cores)} cores, {side}: {json.dumps(shown)}", file=sys.stderr)
    assert {run["tokens"] for some in runs.values() for run in some} == {runs["hit"][0]["tokens"]}
    assert {run["store"] for run in runs["hit"]} == {"hit"}
    median = {side: {key: statistics.median(run[key] for run in runs[side]) for key in KEYS} for side in SIDES}
    base, ours = median["baseline"], median["prepare"]
    steady = statistics.median(run["steady_rows_per_s"] for run in runs["prepare"])
    return {
        "cores": len(cores),
        "how": sorted({run["how"] for run in runs["prepare"]}),
        "first_chunk_s": statistics.median(run["first_chunk_s"] for run in runs["prepare"]),
        "steady_rate_over_baseline": steady * base["work_s"] / runs["baseline"][0]["rows"],
        "median": median,
        "throughput_over_baseline": {key: base[key] / ours[key] for key in ("whole_s", "work_s", "work_cpu_s")},
        "gate": {"at_least": 0.9, "met": base["work_s"] / ours["work_s"] >= 0.9},
        "runs": runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--cores", help="core counts, such as 2,4,16; those beyond what is there are left out, and said"
    )
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--tokenizer", default="qwen-152k")
    parser.add_argument(
        "--side", choices=SIDES, help="run one side here and print its figures (used by the script itself)"
    )
    parser.add_argument("--only-cores", help="core numbers that a side may use (used by the script itself)")
    args = parser.parse_args()
    data, tokenizer = args.shared / "data/sft/sft_mix.jsonl.gz", args.shared / "tokenizers" / args.tokenizer
    if args.side:
        # Before anything is imported that counts cores or starts threads.
        os.sched_setaffinity(0, {int(number) for number in args.only_cores.split(",")})
        print(json.dumps(baseline(data, tokenizer) if args.side == "baseline" else prepare(data, tokenizer)))
        return

    from dynotune.data.workers.cores import usable_cores

    there = sorted(os.sched_getaffinity(0))
    most = usable_cores()
    asked = [int(count) for count in args.cores.split(",")] if args.cores else [most]
    load = os.getloadavg()[0]
    left_out = [count for count in asked if count > most]
    if left_out:
        print(f"left out, since {most} cores are there: {', '.join(map(str, left_out))}", file=sys.stderr)
    results = [measured(args, set(there[:count])) for count in asked if count <= most]
    if not results:
        raise SystemExit("no core count that could be measured")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True)
    first = results[0]["runs"]["hit"][0]
    result = {
        "what": "dynotune prepare beside rendering and one batched encode",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "command": " ".join(Path(word).name if "/" in word else word for word in sys.argv),
        "machine": {
            "cores": most,
            "processor": platform.processor() or platform.machine(),
            "load_before": load,
        },
        "versions": {name: version(name) for name in ("tokenizers", "transformers", "numpy")}
        | {"python": sys.version.split()[0]},
        "tokens": first["tokens"],
        "packing": first["packing"],
        "cores_left_out": left_out,
        "by_cores": results,
    }
    if args.out:
        args.out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"{'cores':>5} {'':10}{'whole s':>9}{'work s':>9}{'CPU s':>9}{'own':>8}{'children':>10}{'tokens/s':>13}")
    for one in results:
        for side, figures in one["median"].items():
            rate = result["tokens"] / figures["work_s"]
            print(
                f"{one['cores']:5} {side:10}{figures['whole_s']:9.2f}{figures['work_s']:9.2f}{figures['work_cpu_s']:9.2f}"
                f"{figures['own_cpu_s']:8.2f}{figures['children_cpu_s']:10.2f}{rate:13,.0f}"
            )
    for one in results:
        ratio, met = one["throughput_over_baseline"], one["gate"]["met"]
        print(
            f"{one['cores']} cores: prepare / baseline {ratio['work_s']:.2f} by work, {ratio['whole_s']:.2f} whole,"
            f" {ratio['work_cpu_s']:.2f} by processor time, {one['steady_rate_over_baseline']:.2f} between 20 % and 90 % of"
            f" the rows; first rows after {one['first_chunk_s']:.2f} s, by {', '.join(one['how'])}; gate 0.9 met: {met}"
        )


if __name__ == "__main__":
    main()
