"""How often a bench is wrong: 2,000 simulated benches a host, of the schedule, stopping and verdicts as they are shipped.

    python benchmarks/bench_statistics.py --out benchmarks/results/bench_statistics.json [--benches 2000]

Hosts are made up (noise of a step, share of slow steps, drift of clocks) or recorded by `benchmarks/step_noise.py`. Beside
the bench stand the designs that it replaces: 80 steps of A and then 80 of B, and stopping when a difference is significant.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.bench.hosts import EVERY, Host, benches, for_significance, naive

from dynotune.bench import statistics

EFFECT = 0.03


def of_host(host: Host, count: int) -> dict[str, Any]:
    equal, apart = benches(host, count), benches(host, count, EFFECT)
    called = Counter(str(one.judgement.verdict) for one in equal)
    return {
        "interval_misses_zero": float(np.mean([one.misses(0.0) for one in equal])),
        "called_different": (called["FASTER"] + called["SLOWER"]) / count,
        "called_same": called["SAME"] / count,
        "pairs": float(np.mean([one.estimate.pairs for one in equal])),
        "half_width": float(np.median([one.estimate.half_width for one in equal])),
        "of_3_per_cent": {name: n / count for name, n in Counter(str(one.judgement.verdict) for one in apart).items()},
        "naive_calls_different": naive(host, count),
        "stopped_when_significant_misses_zero": float(
            np.mean([one.misses(0.0) for one in benches(host, count, stopping=for_significance)])
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--benches", type=int, default=2000)
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    statistics.BOOTSTRAP_FROM = sys.maxsize  # it decides nothing and takes most of the time
    hosts = {}
    print(f"{'host':26} misses 0  called  same  pairs  half width  3 %: faster  open  naive  significance")
    for name, host in EVERY.items():
        found = hosts[name] = of_host(host, args.benches)
        faster, left_open = (found["of_3_per_cent"].get(word, 0.0) for word in ("FASTER", "UNRESOLVED"))
        print(
            f"{name:26} {found['interval_misses_zero']:8.1%} {found['called_different']:7.2%} {found['called_same']:5.0%}"
            f" {found['pairs']:6.1f} {found['half_width']:11.2%} {faster:12.1%} {left_open:5.0%}"
            f" {found['naive_calls_different']:6.0%} {found['stopped_when_significant_misses_zero']:13.1%}",
            flush=True,
        )
    out = {"command": " ".join(["python", *sys.argv]), "commit": args.commit, "benches": args.benches, "hosts": hosts}
    args.out.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
