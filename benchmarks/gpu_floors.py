"""Where the step of a row goes by kernel class, each beside its floor: what an aim that was missed is missed by.

    python benchmarks/gpu_floors.py --output OUT --rows 16-of-129,0.5b-full,23m-full-32,dpo-32 [--shared SHARED]
        [--commit COMMIT] [--seconds 600] [--dry]

Rows and their first Dynotune arm are those of `benchmarks.peers`, observed as `dynotune profile` does: steps timed without a
profiler, then three traced ones. A row that has an arm with `speedups: {step_graphs: on}` is observed so, too, beside the
floors of the launched arm: a replay's trace names no shapes, by which products of adapters are told from others, so both are
one class there, `GEMM and LoRA`. (A replay has fewer rungs and so up to 2 % more tokens, which these floors do not have.) A
row that fails is kept as that. On an H200 a row takes 40 to 70 s, by estimate; one for which `--seconds` leaves no time, by
the slowest before it, is left out and said to be. JSON: `floors.json`, written behind each row, with commit, command,
hardware and versions. `--dry` rehearses it on the CPU with a tiny model.
"""

import argparse
import json
import sys
import tempfile
import time
import traceback
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import shapes
from benchmarks.gpu_engagement import LORA
from benchmarks.peers.arm import ON_CPU, rehearsed
from benchmarks.peers.rows import ROWS, Row, who
from benchmarks.peers.work import SHAPES, common, rows_of, tokenizer_of
from benchmarks.whole_file import write_json
from dynotune import DPOConfig, SFTConfig
from dynotune.environment import cpu_model
from dynotune.measure.kernel_classes import Work
from dynotune.profile.analysis.breakdown import Breakdown, breakdown_of
from dynotune.profile.observing.own import Asked, observe

GRAPHS = {"speedups": {"step_graphs": "on"}}
STEPS = 12
"""Timed, behind the warm-up."""

PRODUCTS, BOTH = (Work.GEMM.value, Work.LORA.value), "GEMM and LoRA"
"""What a replay cannot tell apart, and its name there."""


def config_of(
    row: Row, settings: dict[str, Any], shared: Path | None, folder: Path, dry: bool
) -> SFTConfig | DPOConfig:
    """The row's run as files of a user: random weights, its documents in their order."""
    model, data = folder / "model", folder / "rows.jsonl"
    tokenizer = tokenizer_of(row, shared)
    tokenizer.save_pretrained(folder / "tokenizer")  # beside a Qwen2 model it would be taken for a Qwen2 tokenizer
    shapes.config_of(SHAPES["dry" if dry else row.shape]).save_pretrained(model)
    data.write_text("".join(json.dumps(one) + "\n" for one in rows_of(row, shared, tokenizer)), encoding="utf-8")
    made = DPOConfig if row.pairs else SFTConfig
    small = ON_CPU if dry else {}
    more = {"on_bad_row": "skip"} if row.pairs else {}
    return made(
        model_name_or_path=str(model), tokenizer_name_or_path=str(folder / "tokenizer"), random_weights=True,
        dataset_name=str(data), output_dir=str(folder / "run"),
        **{**common(row), **(LORA if row.lora else {}), **more, **settings, **small},
    )  # fmt: skip


def arms_of(row: Row) -> dict[str, dict[str, Any]]:
    """Launched as the row's first arm of ours is, and replayed where another arm of ours is."""
    ours = [dict(arm.settings) for name, arm in row.arms.items() if who(name) == "dynotune"]
    found = {"launched": {key: value for key, value in ours[0].items() if key not in ("attn", "weights")}}
    if any("step_graphs" in one.get("speedups", {}) for one in ours):
        found["replayed"] = {**found["launched"], **GRAPHS}
    return found


def table(breakdown: Breakdown, launched: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Class, milliseconds, its floor's, and what share of its own time that floor covers. launched: the rows of the launched
    arm, whose floors are taken, those of a class that the replay has no kernel of too: the work is the same, and a replay
    names the shapes of nothing. Where adapters' products are among it they are in one row with the others."""
    own = [
        {
            "class": row.work.value,
            "ms": 1e3 * row.seconds,
            "floor_ms": row.floor and 1e3 * row.floor,
            "covered": row.covered,
        }
        for row in breakdown.rows
    ]
    if launched is None:
        return own
    if any(one["class"] == Work.LORA.value for one in launched):
        own, launched = together(own), together(launched)
    floors = {one["class"]: one["floor_ms"] for one in launched}
    mine = [{**one, "floor_ms": floors.pop(one["class"], None), "covered": None} for one in own]
    return mine + [
        {"class": name, "ms": 0.0, "floor_ms": floor, "covered": None} for name, floor in floors.items() if floor
    ]


def together(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With one row for all products of the layers, where the first of them was. Its floor is known where each one's is."""
    products = [one for one in rows if one["class"] in PRODUCTS]
    floors = [one["floor_ms"] for one in products]
    both = {
        "class": BOTH,
        "ms": sum(one["ms"] for one in products),
        "floor_ms": None if None in floors else sum(floors),
        "covered": None,
    }
    return [both if one is products[0] else one for one in rows if one not in products[1:]] if products else rows


def observed(row: Row, shared: Path | None, dry: bool) -> dict[str, Any]:
    """All arms of a row, each with its table and what share of the step its floors are."""
    row = rehearsed(row) if dry else row
    result: dict[str, Any] = {"holds": row.holds, "arms": {}}
    for name, settings in arms_of(row).items():
        if dry and name == "replayed":
            continue  # there are no graphs without a GPU
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            config = config_of(row, settings, shared, Path(folder), dry)
            record = observe(config, Asked(2 if dry else STEPS), Console(quiet=True))
        breakdown = breakdown_of(record)
        assert breakdown is not None
        rows = table(breakdown, result["arms"]["launched"]["rows"] if name == "replayed" else None)
        result["arms"][name] = {
            "seconds": round(time.perf_counter() - began, 1),
            "step_ms": 1e3 * breakdown.seconds,
            "floors_ms": sum(one["floor_ms"] or 0.0 for one in rows),
            "profiler_slowdown": breakdown.slowdown,
            "idle_within_trace_ms": None if (idle := breakdown.idle_within_trace) is None else 1e3 * idle,
            "ceilings": {"matmul": dict(record.ceilings.matmul), "memory": record.ceilings.memory},
            "rows": rows,
            "kernels": [
                {"name": kernel, "class": work.value, "ms": 1e3 * seconds, "calls": calls}
                for kernel, work, seconds, calls in breakdown.kernels
            ],
        }
        print(f"{row.holds}, {name}: {1e3 * breakdown.seconds:.1f} ms", flush=True)
        for one in rows:
            floor = "" if one["floor_ms"] is None else f"{one['floor_ms']:8.2f}"
            print(f"  {one['class']:28} {one['ms']:8.2f} {floor:>8}", flush=True)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--rows", default="16-of-129,0.5b-full,23m-full-32,dpo-32")
    parser.add_argument("--shared", type=Path)
    parser.add_argument("--commit", default="")
    parser.add_argument("--seconds", type=float, default=600.0, help="that may pass in all")
    parser.add_argument("--dry", action="store_true")
    args = parser.parse_args()
    names = args.rows.split(",")
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"no rows: {', '.join(unknown)}; there are {', '.join(ROWS)}")
    started, longest = time.perf_counter(), 0.0
    result: dict[str, Any] = {
        "command": f"python benchmarks/gpu_floors.py --output OUT --rows {args.rows}",
        "commit": args.commit,
        "hardware": cpu_model() if args.dry else torch.cuda.get_device_name(),
        "versions": {name: metadata.version(name) for name in ("torch", "transformers", "peft")},
        "rows": {},
    }
    for name in names:
        if time.perf_counter() - started + longest > args.seconds:
            result["rows"][name] = {"left_out": f"no time was left: a row took {longest:.0f} s"}
            write_json(args.output / "floors.json", result)
            print(f"{name}: left out, no time")
            continue
        began = time.perf_counter()
        try:
            result["rows"][name] = observed(ROWS[name], args.shared, args.dry)
        except Exception as error:  # noqa: BLE001 - what was measured so far and the rows behind it are worth more
            result["rows"][name] = {"failed": "".join(traceback.format_exception(error))[-4000:]}
            print(result["rows"][name]["failed"], flush=True)
        longest = max(longest, time.perf_counter() - began)
        write_json(args.output / "floors.json", result)
    return int(any("failed" in row for row in result["rows"].values()))


if __name__ == "__main__":
    raise SystemExit(main())
