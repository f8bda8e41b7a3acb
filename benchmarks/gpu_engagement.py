"""The proof on a GPU: what each speed-up shows in a traced step of a real run, and that switched off it shows nothing.

    python benchmarks/gpu_engagement.py --output FOLDER [--cases lora,full] [--layers 28] [--tiny]

For LoRA and full fine-tuning of the Qwen2.5-7B shape (fewer layers where it is trained in full) one run as a user gets it,
one with each attention backend and each optional speed-up asked for by name, and one with each speed-up off, whose trace is
held against the expectations of the run that had it: the negative control. A run takes six steps of 4,096 tokens. Of the
step as a whole, a run as it comes must be called free of products in full precision and of waits of the host; one in which a
callback plants such a product, or a value that is read, in a layer's forward must not.

Prediction: a step of 28 layers has about 8,000 launches and 25,000 operators; reading them takes under a second, and CUPTI
begins in about one. JSON: for each run the observations, kernels by time, seconds a step and what the trace cost.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from rich.console import Console
from tests.tiny import tiny_tokenizer
from transformers import TrainerCallback

from dynotune import SFTConfig, train_sft
from dynotune.measure.evidence import Evidence, Source
from dynotune.speedups.judge import judge
from dynotune.speedups.registry import speedups
from dynotune.speedups.whole_step import PRODUCTS, WAITS
from dynotune.train.engagement import Engagement

SHAPE = {
    "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": False,
    "max_position_embeddings": 32768, "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
    "num_key_value_heads": 4, "vocab_size": 152064,
}  # fmt: skip
SMALL = {**SHAPE, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 1024}
LORA = {"use_peft": True, "lora_r": 32, "lora_alpha": 64, "lora_dropout": 0.0, "lora_target_modules": "all-linear"}
STEPS, TOKENS = 6, 4096
PEERS = {"liger_rms_norm": "on", "liger_rope": "on", "liger_swiglu": "on"}


class Plant(TrainerCallback):
    """Does something no step should hold, behind the forward of the second layer."""

    def __init__(self, what: str) -> None:
        self.what = what

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        def reads(module: Any, given: Any, result: torch.Tensor) -> None:
            result.detach().abs().max().item()

        def multiplies(module: Any, given: Any, result: torch.Tensor) -> None:
            with torch.autocast(result.device.type, enabled=False):
                torch.mm(given[0].detach().flatten(0, -2).float().T, result.detach().flatten(0, -2).float())

        mlp = next(one for name, one in model.named_modules() if name.endswith("layers.1.mlp"))
        mlp.register_forward_hook(reads if self.what == WAITS else multiplies)


class Watch:
    """Keeps what every proof was judged by."""

    def __init__(self) -> None:
        self.evidence: Evidence | None = None
        self.expected: dict[str, tuple[Any, tuple[str, ...], tuple[str, ...]]] = {}

    def __enter__(self) -> "Watch":
        self.original = Engagement.conclude

        def conclude(engagement: Engagement, run: Any) -> list[str]:
            if engagement._evidence is not None and self.evidence is None:
                self.evidence = engagement._evidence
                for one in engagement.installed:
                    assert one.installed is not None
                    there = one.installed
                    self.expected[one.name] = engagement.installed.expectations(one), there.places, there.left_out
            return self.original(engagement, run)

        Engagement.conclude = conclude  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Engagement.conclude = self.original  # type: ignore[method-assign]


def run(shape: dict[str, Any], settings: dict[str, Any], tokens: int, plant: str = "") -> tuple[dict[str, Any], Watch]:
    """One short run: its observations, times and what it said."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(tokens // 32, tokens // 8, 400)
    rows = [{"input_ids": rng.integers(5, 340, n).tolist()} for n in lengths]
    console, began = Console(file=StringIO(), width=400), time.perf_counter()
    # What a run keeps at its end is no part of its proof: the weights of a whole 7B's layers took 10 s to write.
    unsaved = patch("dynotune.train.flow.finish", lambda *_: {})
    with tempfile.TemporaryDirectory() as folder, Watch() as watch, unsaved:
        (Path(folder) / "config.json").write_text(json.dumps(shape))
        try:
            done = train_sft(
                SFTConfig(
                    **{
                        "model_name_or_path": folder, "random_weights": True, "output_dir": f"{folder}/run",
                        "max_length": None, "global_batch_size": 16, "max_steps": STEPS, "micro_batch_tokens": tokens,
                        "save_strategy": "no", "logging_steps": 1, "disable_tqdm": True, "token_cache": "off",
                        "learning_rate": 1e-5, "bf16": True, **settings,
                    }
                ),
                tokenizer=tiny_tokenizer(), train_dataset=rows, console=console,
                callbacks=[Plant(plant)] if plant else (),
            )  # fmt: skip
            figures: dict[str, Any] = {
                "seconds_per_step": [row["seconds_per_step"] for row in done.metrics if "loss" in row],
                "losses": [row["loss"] for row in done.metrics if "loss" in row],
            }
        except Exception as error:  # noqa: BLE001  a run that cannot be is a result here
            figures = {"error": f"{type(error).__name__}: {str(error).strip()[:600]}"}
        proof = Path(folder) / "run" / "engagement.json"
        figures["engagement"] = json.loads(proof.read_text()) if proof.is_file() else None
    figures |= {"said": console.file.getvalue().splitlines(), "seconds": time.perf_counter() - began}  # type: ignore[attr-defined]
    if watch.evidence is not None:
        figures["kernels"] = kernels(watch.evidence)
        figures["facts"] = {k: v for k, v in watch.evidence.facts.items() if not isinstance(v, list) or len(v) < 20}
        figures["trace_seconds"] = watch.evidence.seconds
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return figures, watch


def kernels(evidence: Evidence) -> list[dict[str, Any]]:
    """By name and phase, the longest first."""
    found: dict[tuple[str, str], list[float]] = {}
    for one in evidence.seen:
        if one.source is Source.KERNEL:
            counted = found.setdefault((one.name[:120], str(one.phase)), [0, 0.0])
            counted[0] += one.count
            counted[1] += one.microseconds
    ranked = sorted(found.items(), key=lambda item: -item[1][1])
    return [{"name": n, "phase": p, "count": c, "microseconds": round(us)} for (n, p), (c, us) in ranked[:60]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for gpu_engagement.json")
    parser.add_argument("--cases", default="lora,full")
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--only", default="", help="runs by name, separated by commas; default all")
    parser.add_argument("--tiny", action="store_true", help="a small model, to try the script")
    args = parser.parse_args()
    result: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]), "commit": _commit(),
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "versions": {p: metadata.version(p) for p in ("torch", "transformers", "peft")}
        | {"python": platform.python_version()},
        "cases": {},
    }  # fmt: skip
    args.output.mkdir(parents=True, exist_ok=True)

    def keep() -> None:  # what is stopped leaves what it has
        (args.output / "gpu_engagement.json").write_text(json.dumps(result, indent=1, default=str) + "\n")

    tokens = 512 if args.tiny else TOKENS
    failed = []
    for case in args.cases.split(","):
        layers = 2 if args.tiny else args.layers if case == "lora" else min(args.layers, 6)
        shape = {**(SMALL if args.tiny else SHAPE), "num_hidden_layers": layers}
        settings = dict(LORA if case == "lora" else {})
        runs = result["cases"][case] = {}
        wanted = args.only.split(",") if args.only else None
        base, watch = run(shape, settings, tokens)
        runs["as it comes"] = base
        keep()
        print_run(f"{case}, as it comes", base)
        failed += [f"{case}: {one['what']} {one['presence']}" for one in unwanted(base) if one["presence"] != "absent"]
        for what in (PRODUCTS, WAITS) if wanted is None or "planted" in wanted else ():
            runs[f"planted: {what}"], _ = run(shape, settings, tokens, what)
            keep()
            print_run(f"{case}, planted: {what}", runs[f"planted: {what}"])
            found = {one["what"] for one in unwanted(runs[f"planted: {what}"]) if one["presence"] == "found"}
            failed += [] if found == {what} else [f"{case}: planted {what}, found {found}"]
        optional = [
            one.name
            for one in speedups().values()
            if one.slot in ("attention", "activation_memory") or (one.default == "off" and not one.follows)
        ]
        asked = {name: {"speedups": {name: "on"}} for name in optional}
        controls = runs["negative controls"] = {}
        together = {
            "liger": {"speedups": PEERS},
            "liger_cross_entropy": {"speedups": {"liger_cross_entropy": "on"}},
            "activation_budget": {"speedups": {"compiled_layers": "on"}, "activation_memory_budget": 0.5},
        }
        for name, which in {**asked, **together}.items():
            if wanted is None or name in wanted:
                runs[f"{name} on"], on = run(shape, {**settings, **which}, tokens)
                keep()
                print_run(f"{case}, {name} on", runs[f"{name} on"])
                for added in on.expected.keys() - watch.expected.keys():  # it is off in the run as it comes
                    failed += control(controls, added, on.expected[added], watch.evidence, base)
                    keep()
        for name, expected in watch.expected.items():
            if wanted is not None and f"no {name}" not in wanted and "controls" not in wanted:
                continue
            figures, off = run(shape, {**settings, "speedups": {name: "off"}}, tokens)
            failed += control(controls, name, expected, off.evidence, figures)
            keep()
    if failed:
        print(f"FAILED: {', '.join(failed)}")
    return int(bool(failed))


def unwanted(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """What its step should not hold, as the proof judged it."""
    return (figures["engagement"] or {}).get("unwanted") or []


def control(
    controls: dict[str, Any],
    name: str,
    expected: tuple[Any, tuple[str, ...], tuple[str, ...]],
    off: Evidence | None,
    run: dict[str, Any],
) -> list[str]:
    """Judge a run that is without `name` by what was expected of it. Its name, where the proof does not fail."""
    seen = judge(expected[0], off, *expected[1:]) if off is not None else None
    held = seen is not None and str(seen.verdict) != "engaged"
    controls[name] = {
        "verdict": str(seen.verdict) if seen else None, "count": seen.count if seen else None, "holds": held,
        "error": run.get("error"), "seconds_per_step": run.get("seconds_per_step"),
    }  # fmt: skip
    said = f"{seen.verdict} {seen.count}" if seen else f"nothing: {run.get('error')}"
    print(f"   off: {name:<26} proof says {said} {'' if held else '<-- NOT CAUGHT'}", flush=True)
    return [] if held else [name]


def print_run(name: str, figures: dict[str, Any]) -> None:
    steps = figures.get("seconds_per_step") or []
    ms = (
        f"{1e3 * sorted(steps[3:])[len(steps[3:]) // 2]:.0f} ms a step"
        if len(steps) > 4
        else figures.get("error", "")[:300]
    )
    print(f"== {name}: {ms}; trace {figures.get('trace_seconds', 0):.1f} s; run {figures['seconds']:.0f} s", flush=True)
    for one in unwanted(figures):
        events = " ".join(f"{e['name'][:60]} ({e['phase']}, {e['place']}) x {e['count']}" for e in one["events"][:3])
        print(f"   {one['what']:<26} {one['presence']:<12} {one['count']:<7} {one['why']} {events}", flush=True)
    for one, seen in ((figures["engagement"] or {}).get("observations") or {}).items():
        more = " ".join([*seen["against"], *seen["missing"][:2]])
        print(
            f"   {one:<26} {seen['verdict']:<12} {seen['seen']}/{seen['of']:<5} {seen['evidence'][:110]} {more}",
            flush=True,
        )


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
