"""The tables that `dynotune profile` compares a run with, made from the results that are kept here.

    python benchmarks/profile_tables.py            writes src/dynotune/profile/analysis/measured/{speeds,attention}.json

No figure is typed: each row names the file that it was read from. `tests/profile/analysis/test_expected.py` fails where the
shipped tables are not what this makes.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.gpu_attention_backends import lognormal

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
MEASURED = ROOT / "src" / "dynotune" / "profile" / "analysis" / "measured"

RUNS = ("h200_beside_trl", "h200_with_elementwise", "h200_beside_trl_dpo", "h200_beside_trl_dpo_mix")
"""Results of `benchmarks/peers`: runs of ours of the 7B shape under LoRA of rank 32."""

ATTENTION = ("h200_attention_backends", "h200_attention_fa4")
"""Results of `benchmarks/gpu_attention_backends.py`; of a kernel that stands in several, the first."""


def speeds() -> list[dict[str, Any]]:
    """A row for each run of ours that was kept, without its first steps where others were timed."""
    found = []
    for name in RUNS:
        body = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        for work, told in body["works"].items():
            for arm, one in told["arms"].items():
                summary = one.get("summary") or {}
                if not arm.startswith("dynotune") or not summary.get("mfu"):
                    continue
                steady = "steady_" if summary.get("steady_mfu") else ""
                found.append(
                    {
                        "gpu": body["hardware"],
                        "method": "dpo" if "dpo" in name else "sft",
                        "adapter": True,
                        "model": "Qwen2.5-7B shape",
                        "work": work,
                        "tokens_a_step": round(summary["real_tokens"] / summary["steps"]),
                        "tokens_per_second": round(summary[f"{steady}tokens_per_second"]),
                        "mfu": round(summary[f"{steady}mfu"], 4),
                        "peak_tflops": summary["peak_tflops"],
                        "versions": {
                            k: v for k, v in body["versions"].items() if k in ("torch", "transformers", "peft")
                        },
                        "commit": body.get("commit", ""),
                        "source": f"benchmarks/results/{name}.json",
                    }
                )
    return found


def attention() -> list[dict[str, Any]]:
    """TFLOP/s of packed attention, forward and backward, by kernel and by the length that a token of it sees on average."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name in ATTENTION:
        body = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        lengths = {"4": [4096] * 4, "lognormal": lognormal(16384), "1": [16384]}
        for kernel, told in body["backends"].items():
            rows = [
                {
                    "gpu": body["hardware"],
                    "kernel": kernel,
                    "head_dim": int(one["heads"].partition("x")[2]),
                    "length": round(sum(n * n for n in lengths[one["documents"]]) / 16384),
                    "tflops": one["tflops"],
                    "source": f"benchmarks/results/{name}.json",
                }
                for one in told["times"]
                if one["documents"] in lengths
            ]
            found.setdefault(kernel, rows)
    return [row for rows in found.values() for row in rows]


def tables() -> dict[str, str]:
    """By file name its text."""
    made = {"speeds.json": speeds(), "attention.json": attention()}
    return {name: json.dumps({"format": 1, "rows": rows}, indent=1) + "\n" for name, rows in made.items()}


if __name__ == "__main__":
    for file, text in tables().items():
        (MEASURED / file).write_text(text, encoding="utf-8")
        print(f"written: {file}")
