"""Policies of activation memory on a GPU: memory, time and gradients of each, beside the estimate, and what would be chosen.

    python -m benchmarks.gpu_activation_memory --output OUT.json [--commit COMMIT] [--shapes "7B, 12 layers, LoRA"] [--tiny]

Two shapes: 0.5B trained in full (float32 masters, computed in bfloat16) and 12 layers of a 7B shape under LoRA r=32 on all
linears without dropout, fused, with the elementwise kernels. For each policy and micro-batches of 2,048 to 32,768 tokens:
forward and backward of documents of 512 tokens that all carry labels. Correctness first: gradients of each policy must be as
near to those of `none` on the same batch as two runs of `none` are to each other, times 2 (attention sums queries' gradients
in another order from run to run; where it does not, that is equality to the bit). Each policy is measured as a run has it:
without the speed-ups that give way to it, which are then out of the `none` that its gradients are held against, too.

Predictions, a token of a 7B layer under LoRA in bfloat16 (159 kB kept): selective does not keep two norms' results and the
activation's (52 kB, 33 %) and moves 142 kB more, so at 16,384 tokens and 3.5 TB/s 8 ms of about 400 for 12 layers and the
head; full keeps 7 kB and adds a forward without the last product (1.4 to 1.45 times, head apart); offload keeps two layers'
inputs and copies 7 kB a token and layer each way, at 16,384 tokens 117 MB a layer or 2.2 ms at 53 GB/s beside 24 ms of
computing, so it takes as long as full. The estimate is to be within 5 % below and 10 % above the peak.

`--tiny` runs tiny shapes on the CPU, where nothing is measured but that all of it runs.
"""

import argparse
import gc
import json
import platform
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from dynotune import SFTConfig
from dynotune.estimate.fastest import Measured, Question, Setting, relative_costs
from dynotune.estimate.memory import StepMemory, live_memory
from dynotune.execution.packed import PackedPath
from dynotune.measure.memory import GIB
from dynotune.model.attention import hidden_states, packed_attention
from dynotune.model.packed import pack
from dynotune.model.precision import Precision
from dynotune.objectives.sft import SFTObjective
from dynotune.speedups.activation import POLICIES, PREFIX
from dynotune.speedups.choose import Decision, decide
from dynotune.speedups.contract import Context
from dynotune.speedups.installed import Installed
from dynotune.speedups.registry import speedups
from dynotune.speedups.site import Site
from dynotune.train.start.device import autocast_of
from dynotune.train.start.dry_run import policy_in_place

SHAPES: dict[str, dict[str, int]] = {
    "0.5B full": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
                  "num_key_value_heads": 2, "vocab_size": 151936},
    "7B, 12 layers, LoRA": {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 12,
                            "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064},
    "tiny full": {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4,
                  "num_key_value_heads": 2, "vocab_size": 512},
    "tiny LoRA": {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4,
                  "num_key_value_heads": 2, "vocab_size": 512},
}  # fmt: skip
SIZES = (2048, 8192, 16_384, 32_768)
DOCUMENT = 512
BUDGETS = (24, 40, 80, 139)
"""GiB of made-up devices, for what would be chosen there."""


class Bed:
    """A model with all speed-ups of packed execution, ready for a pass."""

    def __init__(self, name: str, device: torch.device) -> None:
        from transformers import AutoModelForCausalLM, Qwen2Config

        self.name, self.device, self.lora = name, device, "LoRA" in name
        on_gpu = device.type == "cuda"
        self.precision = Precision(torch.bfloat16 if self.lora and on_gpu else torch.float32, on_gpu)
        shape = Qwen2Config(**SHAPES[name], tie_word_embeddings=False, max_position_embeddings=65_536, use_cache=False)
        torch.manual_seed(0)
        with torch.device(device):
            model: Any = AutoModelForCausalLM.from_config(shape, dtype=self.precision.weights)
        if self.lora:
            from peft import LoraConfig, get_peft_model

            model = get_peft_model(
                model, LoraConfig(r=32, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
            )
            for parameter_name, p in model.named_parameters():
                if p.requires_grad:
                    p.data = p.data.float()
                    if "lora_B" in parameter_name:
                        torch.nn.init.normal_(p, std=0.02)
        self.model = model.train()
        config = SFTConfig(
            packed_execution="on", use_peft=self.lora, use_cpu=not on_gpu, speedups={"compiled_layers": "off"}
            if "compiled_layers" in speedups() else {},
        )  # fmt: skip
        self.config = config
        compute = torch.bfloat16 if on_gpu else torch.float32
        context = Context(config, self.model, device, compute, self.precision, longest=DOCUMENT)
        self.site = Site(context, autocast_of(self.precision, device))
        self.stack = ExitStack()
        self.installed = Installed(decide(config, context, speedups()), self.site)
        self.stack.callback(self.installed.close)
        self.path = PackedPath(self.site, SFTObjective(config))
        self.stack.callback(lambda: self.path.close())
        self.weights = torch.cuda.memory_allocated(device) if on_gpu else 0

    def batch(self, tokens: int, seed: int = 0) -> Any:
        rng = np.random.default_rng(seed)
        size = min(DOCUMENT, tokens)
        ids = [rng.integers(5, SHAPES[self.name]["vocab_size"], size).astype(np.int32) for _ in range(tokens // size)]
        host = self.path.host_batch([(one, one) for one in ids], tokens, pin=False)
        return host.unpack(host.buffer.to(self.device))

    def one_pass(self, batch: Any) -> None:
        with self.path.engaged():
            with self.site.autocast():
                loss, _ = self.path.loss(batch)
            (loss / len(batch.targets_N)).backward()

    def gradients(self, batch: Any) -> torch.Tensor:
        self.model.zero_grad(set_to_none=True)
        self.one_pass(batch)
        found = torch.cat([p.grad.flatten() for p in self.model.parameters() if p.grad is not None]).float().cpu()
        self.model.zero_grad(set_to_none=True)
        return found

    def memory(self) -> StepMemory:
        def run(tokens: int) -> torch.Tensor:
            document = np.ones(tokens, np.int32), np.ones(tokens, np.int32)
            with self.site.autocast():
                return hidden_states(self.model, pack([document], tokens, self.device))

        self.path.close()
        try:
            with packed_attention(self.model) as attention:
                attention.backend = self.site.attention
                return live_memory(self.model, self.config, self.precision, run, self.installed)[0]
        finally:
            self.path = PackedPath(self.site, SFTObjective(self.config))


def measured(bed: Bed, tokens: int, repeats: int) -> dict[str, Any]:
    """Peak of a pass that finds no gradients, and the median time of passes behind the first."""
    on_gpu = bed.device.type == "cuda"
    gc.collect()
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    batch, times = bed.batch(tokens), []
    for _ in range(1 + repeats):
        bed.model.zero_grad(set_to_none=True)
        if on_gpu:
            torch.cuda.synchronize()
        began = time.perf_counter()
        bed.one_pass(batch)
        if on_gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    bed.model.zero_grad(set_to_none=True)
    seconds = sorted(times[1:])[repeats // 2]
    found = {"ms": 1e3 * seconds, "ms_all": [1e3 * t for t in times], "tokens_per_second": tokens / seconds}
    if on_gpu:
        found["peak_gib"] = torch.cuda.max_memory_allocated() / GIB
        found["reserved_gib"] = torch.cuda.max_memory_reserved() / GIB
    return found


def tried(what: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What it gives, or the error: the others go on."""
    try:
        return what()
    except (RuntimeError, ValueError, TypeError, AttributeError, AssertionError) as error:
        text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return {"error": text[:300]}


def correctness(bed: Bed, tokens: int) -> dict[str, Any]:
    """Distances of each policy's gradients from those of `none`, relative."""
    batch = bed.batch(tokens, seed=1)
    found: dict[str, Any] = {"ok": True}
    rights: dict[tuple[str, ...], tuple[torch.Tensor, float]] = {}
    for policy in POLICIES[1:]:
        gone = gives_way(bed, policy)
        names = tuple(one.name for one in gone)
        if names not in rights:
            with ExitStack() as back:
                for one in gone:
                    back.enter_context(bed.installed.without(one))
                right, again = bed.gradients(batch), bed.gradients(batch)
            rights[names] = right, distance(again, right)
            found[" ".join(["none again", *(["without", *names] if names else [])])] = rights[names][1]
        right, noise = rights[names]
        with policy_in_place(bed.installed, policy) as there:
            found[policy] = distance(bed.gradients(batch), right) if there else None
        found["ok"] &= found[policy] is None or found[policy] <= 2 * noise
    return found


def gives_way(bed: Bed, policy: str) -> list[Decision]:
    """What a run that takes the policy has not in its model."""
    return bed.installed.giving_way(speedups()[f"{PREFIX}{policy}"])


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / b.norm())


def measure(name: str, device: torch.device, sizes: tuple[int, ...], repeats: int) -> dict[str, Any]:
    """All policies and sizes of one shape."""
    bed = Bed(name, device)
    result: dict[str, Any] = {"shape": name, "speedups": [one.name for one in bed.installed], "cases": []}
    result["gradients"] = tried(lambda: correctness(bed, sizes[0]))
    memory = bed.memory()
    counted = memory.counted
    result["bytes_a_token"] = {p: memory.under(p).per_token.bytes for p in POLICIES} | {
        "kept": counted.kept,
        "cheap": counted.cheap,
    }
    result["gives_way"] = {p: [one.name for one in gives_way(bed, p)] for p in POLICIES[1:]}
    trials: dict[Setting, Measured | None] = {}
    for policy in POLICIES:
        with policy_in_place(bed.installed, policy) as there:
            for tokens in sizes if there else ():
                found = tried(lambda tokens=tokens: measured(bed, tokens, repeats))  # type: ignore[misc]
                parts = memory.under(policy).parts(tokens, 1.0, packed=True, accumulates=False)
                estimate = sum(part.bytes for part in parts if part.name != "optimizer") / GIB  # none is there
                case = {"policy": policy, "tokens": tokens, "estimate_gib": estimate, **found}
                if "peak_gib" in case:
                    case["estimate_to_peak"] = estimate / case["peak_gib"]
                    beside = int(case["peak_gib"] * GIB) - bed.weights
                    trials[Setting(policy, tokens)] = Measured(beside, beside, case["ms"] / 1e3)
                result["cases"].append(case)
                print(
                    f"{name}: {policy}, {tokens:,} tokens: {case.get('ms', case.get('error'))}",
                    file=sys.stderr,
                    flush=True,
                )
            if not there:
                result["cases"].append({"policy": policy, "error": "it cannot be put in here"})
    result["chosen"] = chosen(memory, bed, trials, sizes)
    bed.stack.close()
    return result


def chosen(
    memory: StepMemory, bed: Bed, trials: dict[Setting, Measured | None], sizes: tuple[int, ...]
) -> dict[str, Any]:
    """What the chooser takes on devices of several sizes, by estimate, and what was the fastest of what was measured."""
    found = {}
    for gib in BUDGETS:
        free = gib * GIB - bed.weights
        of = Question(
            free, lambda policy, tokens: memory.under(policy).needed(tokens), relative_costs([*POLICIES], bed.lora),
            min(DOCUMENT, *sizes), max(sizes),
        )  # fmt: skip
        best = of.fastest()
        # Trials are passes alone; what a run holds beside them is added.
        states = sum(p.bytes for p in memory.parts(64, 1.0, packed=True) if p.name == "optimizer")
        fitting = [
            (m.seconds / s.tokens, s) for s, m in trials.items() if m is not None and m.bytes + states <= of.limit()
        ]
        quickest = min(fitting, key=lambda one: one[0])[1] if fitting else None
        found[f"{gib} GiB"] = {
            "chosen": None if best is None else [best.policy, best.tokens],
            "fastest measured": None if quickest is None else [quickest.policy, quickest.tokens],
        }
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--commit", default="")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, help="default those of a GPU, or the tiny ones")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    device = torch.device("cpu") if args.tiny else torch.device("cuda", 0)
    names = args.shapes or [name for name in SHAPES if name.startswith("tiny") == args.tiny]
    sizes = (128, 256) if args.tiny else SIZES
    began = time.perf_counter()
    result: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]), "commit": args.commit,
        "hardware": "cpu" if args.tiny else torch.cuda.get_device_name(),
        "versions": {p: metadata.version(p) for p in ("torch", "transformers", "peft")}
        | {"python": platform.python_version()},
        "shapes": [],
    }  # fmt: skip
    args.output.parent.mkdir(parents=True, exist_ok=True)
    for name in names:
        result["shapes"].append(tried(lambda name=name: measure(name, device, sizes, args.repeats)))  # type: ignore[misc]
        result["seconds"] = time.perf_counter() - began
        args.output.write_text(json.dumps(result, indent=1) + "\n")  # what is stopped leaves the shapes before
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return show(result)


def show(result: dict[str, Any]) -> int:
    """A table. 1 where a gradient or an estimate is wrong, or something failed that is no shortage of memory."""
    failed = False
    for shape in result["shapes"]:
        print(f"== {shape.get('shape', 'failed')}: {shape.get('error', '')}")
        if "error" in shape:
            failed = True
            continue
        print(f"gradients against `none`: {shape['gradients']}")
        failed |= not shape["gradients"].get("ok", False)
        print(f"{'policy':<10}{'tokens':>8}{'ms':>9}{'tok/s':>10}{'peak GiB':>10}{'estimate':>10}{'ratio':>7}")
        for case in shape["cases"]:
            if "ms" not in case:
                print(f"{case['policy']:<10}{case.get('tokens', 0):>8,}  {case['error'][:90]}")
                failed |= "out of memory" not in case["error"] and "cannot be put in" not in case["error"]
                continue
            ratio = case.get("estimate_to_peak")
            failed |= ratio is not None and not 0.95 <= ratio <= 1.10
            print(
                f"{case['policy']:<10}{case['tokens']:>8,}{case['ms']:>9.1f}{case['tokens_per_second']:>10,.0f}"
                f"{case.get('peak_gib', 0):>10.2f}{case['estimate_gib']:>10.2f}{ratio or 0:>7.3f}"
            )
        for device, what in shape["chosen"].items():
            print(f"on {device}: {what}")
    print(f"{result['seconds']:.0f} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
