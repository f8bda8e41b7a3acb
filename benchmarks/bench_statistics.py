"""How often a bench is wrong: 2,000 simulated benches a host, of the schedule, stopping and verdicts as they are shipped.

    python benchmarks/bench_statistics.py --out benchmarks/results/bench_statistics.json [--benches 2000]
    python benchmarks/bench_statistics.py --out benchmarks/results/bench_statistics.json --only stalls

Hosts are made up (noise of a step, share of slow steps, drift of clocks) or recorded by `benchmarks/step_noise.py`. Each is
measured by the rules of its tier: where every block has a process of its own, 6 pairs of 20 steps. Beside
the bench stand the designs that it replaces: 80 steps of A and then 80 of B, and stopping when a difference is significant.
`few_pairs`: `--quick`, and fewer pairs than signs need. `more_pairs`: benches that are unresolved when their pairs are spent
go on for as many more as they say. `stalls`: benches in which some
blocks stand still, with the rule that measures them again and without. With `--only` the rest of the file stays.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.bench import standing_still
from tests.bench.hosts import (
    EFFECTS,
    EVERY,
    Host,
    benches,
    for_significance,
    going_on,
    naive,
    right_of,
    rules_of,
    steps_a_block,
)

from dynotune.bench import statistics
from dynotune.bench.asking.schedule import Rules
from dynotune.bench.running import stalled

EFFECT = 0.03

STANDING_STILL = (0.01, 0.03, 0.1)
"""Shares of blocks."""

WITHOUT = 0.03
"""At which the rule is left out, too."""

RATIOS = (1.0, 2.5)
"""Of the speeds of the arms in which blocks stand still."""

FEW = 20
"""Benches of which no share is told."""

FEWEST = 4
"""Pairs, of whoever types so few: their interval is Student's."""


def of_host(host: Host, count: int) -> dict[str, Any]:
    return {
        **of_rules(host, count, rules_of(host)),
        "naive_calls_different": naive(host, count),
        "stopped_when_significant_misses_zero": float(
            np.mean([one.misses(0.0) for one in benches(host, count, stopping=for_significance)])
        ),
    }


def of_rules(host: Host, count: int, rules: Rules) -> dict[str, Any]:
    """What benches by these rules say of equal arms, and of one that is 3 % faster."""
    equal, apart = benches(host, count, rules=rules), benches(host, count, EFFECT, rules)
    called = Counter(str(one.judgement.verdict) for one in equal)
    return {
        "most_pairs": rules.most_pairs,
        "steps_a_block": steps_a_block(host),
        "interval_misses_zero": float(np.mean([one.misses(0.0) for one in equal])),
        "called_different": (called["FASTER"] + called["SLOWER"]) / count,
        "called_same": called["SAME"] / count,
        "pairs": float(np.mean([one.estimate.pairs for one in equal])),
        "half_width": float(np.median([one.estimate.half_width for one in equal])),
        "of_3_per_cent": {name: n / count for name, n in Counter(str(one.judgement.verdict) for one in apart).items()},
    }


def few_pairs(count: int) -> dict[str, Any]:
    """Of the recorded GPU with `--quick` and with `FEWEST` pairs."""
    host = EVERY["step_noise_h200"]
    rules = {"quick": rules_of(host, quick=True), f"{FEWEST} pairs": Rules(pairs=FEWEST, most_pairs=FEWEST)}
    found = {"benches": count, "host": "step_noise_h200"} | {
        name: of_rules(host, count, one) for name, one in rules.items()
    }
    print(json.dumps(found), flush=True)
    return found


def more_pairs(count: int) -> dict[str, Any]:
    """By host: of so many benches of each effect those that were unresolved and said up to 150 more pairs."""
    enumerated, draws, statistics.ENUMERATED, statistics.DRAWS = statistics.ENUMERATED, statistics.DRAWS, 12, 4000
    hosts: dict[str, Any] = {}
    print(f"{'host':26} of {count * len(EFFECTS)}  resolved by as many  needed / said")
    for name, host in EVERY.items():
        found = [one for effect in EFFECTS for one in going_on(host, count, effect, rules_of(host).most_pairs)]
        hosts[name] = {"unresolved": len(found)}
        if len(found) >= FEW:
            resolved, ratio = right_of(found)
            hosts[name] |= {"resolved": resolved, "needed_to_said": ratio if ratio < np.inf else None}
            print(f"{name:26} {len(found):6} {resolved:20.0%} {ratio:14.2f}", flush=True)
    statistics.ENUMERATED, statistics.DRAWS = enumerated, draws
    return {"benches": count, "effects": EFFECTS, "hosts": hosts}


def stalls(count: int) -> dict[str, Any]:
    """By share of blocks that stand still how often intervals miss, and their median half width; what the rule does to noise
    of half a block's time, where nothing stands still, and what one that goes by the median alone does to it."""
    shares: dict[str, Any] = {}
    for share in STANDING_STILL:
        by_ratio = {ratio: standing_still.benches(count, share, ratio=ratio) for ratio in RATIOS}
        shares[str(share)] = {
            "misses": {str(ratio): standing_still.missed(found, np.log(ratio)) for ratio, found in by_ratio.items()},
            "half_width": _half_width(by_ratio[1.0]),
        }
    factor, apart, least = stalled.FACTOR, stalled.APART, stalled.LEAST
    stalled.FACTOR = np.inf
    shares[str(WITHOUT)]["half_width_without"] = _half_width(standing_still.benches(count, WITHOUT))
    stalled.FACTOR = factor
    noise = {"misses": standing_still.missed(standing_still.benches(count, 0.0, noise=0.5), 0.0)}
    stalled.APART, stalled.LEAST = 0.0, 2
    noise["misses_by_the_median_alone"] = standing_still.missed(standing_still.benches(count, 0.0, noise=0.5), 0.0)
    stalled.APART, stalled.LEAST = apart, least
    found = {"benches": count, "shares": shares, "noise_of_half_a_block": noise}
    print(json.dumps(found), flush=True)
    return found


def _half_width(found: list[tuple[statistics.Estimate, Any]]) -> float:
    return float(np.median([one.half_width for one, _ in found]))


ONLY = {"few_pairs": few_pairs, "more_pairs": lambda _: more_pairs(150), "stalls": stalls}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--benches", type=int, default=2000)
    parser.add_argument("--commit", default="")
    parser.add_argument("--only", choices=ONLY)
    args = parser.parse_args()
    statistics.BOOTSTRAP_FROM = sys.maxsize  # it decides nothing and takes most of the time
    command = " ".join(["python", *sys.argv])
    if args.only:
        out = json.loads(args.out.read_text())
        out[args.only] = {"command": command, "commit": args.commit, **ONLY[args.only](args.benches)}
        args.out.write_text(json.dumps(out, indent=1) + "\n")
        return
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
    out = {"command": command, "commit": args.commit, "benches": args.benches, "hosts": hosts}
    out |= {name: {"command": command, "commit": args.commit, **part(args.benches)} for name, part in ONLY.items()}
    args.out.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
