"""Promise: what docs/speedups.md says of what a proof takes is what the files of results say."""

import json
import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "benchmarks/results" / name).read_text())
    return found


def test_what_a_trace_took_beside_a_step() -> None:
    told = " ".join((ROOT / "docs/speedups.md").read_text().split())
    ours = result("peers-packed-16k.json")["arms"]["dynotune"]["result"]
    step = ours["ms_per_step"] / 1e3
    assert f"{ours['engagement']['seconds']:.1f} s beside a 7B's packed step of {step:.2f} s" in told
    runs = [
        (run["trace_seconds"], statistics.median(run["seconds_per_step"][3:]))
        for case in result("h200_engagement_controls.json")["cases"].values()
        for name, run in case.items()
        if run.get("trace_seconds") and run.get("seconds_per_step") and "flex" not in name  # whose steps compile
    ]
    steps = [step for _, step in runs]
    shares = [trace / step for trace, step in runs]
    assert (
        f"{min(shares):.1f} to {max(shares):.1f} steps of {min(steps):.2f} to {max(steps):.2f} s, of four layers"
        in told
    )
