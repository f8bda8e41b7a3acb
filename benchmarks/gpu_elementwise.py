"""RMSNorm, gated activation and rotary embedding as one kernel each, beside transformers' own: errors, time, a model.

    python benchmarks/gpu_elementwise.py --out OUT

Parts, each in a process of its own, so that none takes another down: `ops` (error against float64 and time, each operation
alone), `model` (forward and backward of Qwen2.5-7B's shape with random weights, LoRA r=32 on all linears through model/lora,
packed attention, the head on label tokens; with and without the kernels), `layers` (two layers against float32, recomputed,
compiled), `sweep` (block sizes and warps). The exit code is 1 if a check of correctness fails or a part does not finish.
`--smoke` runs tiny shapes in Triton's interpreter (TRITON_INTERPRET=1) on the CPU: it checks this script and nothing else.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm, apply_rotary_pos_emb

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
from dynotune.config.keys.objective import SFTObjectiveConfig
from dynotune.model.attention import hidden_states, packed_attention
from dynotune.model.elementwise import gate, install
from dynotune.model.elementwise.usable import Kernels, usable
from dynotune.model.head import find_head
from dynotune.model.lora import install as install_lora
from dynotune.model.packed import pack
from dynotune.objectives.sft import SFTObjective

QWEN_7B = {
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 16384, "rope_theta": 1e6,
}  # fmt: skip
TINY = {
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 512,
}  # fmt: skip
Case = tuple[Any, Any, list[Tensor], int]
"""transformers' own, ours, float32 inputs (those that want a gradient first), how many want one."""

DOCUMENT = 129
"""Tokens of a document, as in the rows of the baseline."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu_elementwise.json")
    parser.add_argument("--commit", default="")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--here", action="store_true", help="the one part in this process")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.here:
        (part,) = args.parts
        (args.out / f"gpu_elementwise.{part}.json").write_text(json.dumps(PARTS[part](Bench(args.smoke)), indent=1))
        return 0
    result: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]), "commit": args.commit,
        "hardware": "cpu" if args.smoke else torch.cuda.get_device_name(),
        "versions": {p: metadata.version(p) for p in ("torch", "transformers", "peft", "triton")}
        | {"python": platform.python_version()},
    }  # fmt: skip
    for part in args.parts:
        command = [sys.executable, __file__, "--out", str(args.out), "--here", "--parts", part]
        command += ["--smoke"] * args.smoke
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        place = args.out / f"gpu_elementwise.{part}.json"
        if done.returncode:
            result[part] = {"failed": done.returncode, "stderr": done.stderr[-4000:]}
        else:
            result[part] = json.loads(place.read_text())
            place.unlink()
        (args.out / "gpu_elementwise.json").write_text(json.dumps(result, indent=1))
        print(f"{part}: {'FAILED' if done.returncode else 'done'}", flush=True)
    return show(result)


class Bench:
    """Where a part runs, with what it measures by."""

    def __init__(self, smoke: bool) -> None:
        self.smoke = smoke
        self.device = torch.device("cpu" if smoke else "cuda", None if smoke else 0)
        self.low = torch.float16 if smoke else torch.bfloat16  # the interpreter cuts bfloat16 off
        self.shape = TINY if smoke else QWEN_7B
        kernels: Any = usable(self.device)
        assert isinstance(kernels, Kernels), kernels
        self.kernels = kernels

    def random(self, *shape: int) -> Tensor:
        return torch.randn(*shape, device=self.device)

    def cases(self, tokens: int, only: str = "") -> dict[str, "Case"]:
        """By name, those whose name begins with `only`."""
        k = self.kernels
        heads, key_heads, d = (4, 2, 16) if self.smoke else (28, 4, 128)
        made: dict[str, Callable[[], Case]] = {}
        for hidden in (64,) if self.smoke else (3584, 896):
            for kind, form in ((Qwen2RMSNorm, (0.0, True)), (Gemma2RMSNorm, (1.0, False))):
                for wants, trained in ((1, ""), (2, ", trained")):
                    name = f"{kind.__name__} {hidden}{trained}"
                    made[name] = partial(self.norm, kind, form, (tokens, hidden), wants)
        made[f"Qwen2RMSNorm of {heads} x {d}"] = partial(self.norm, Qwen2RMSNorm, (0.0, True), (1, tokens, heads, d), 1)
        for width in (160,) if self.smoke else (18944, 4864):
            for tanh in (False, True):
                made[f"{'GELU' if tanh else 'SwiGLU'} {width}"] = lambda t=tanh, w=width: (
                    lambda g, u: gate.reference(t, g, u), lambda g, u: k.gated.apply(g, u, t),
                    [2 * self.random(tokens, w), self.random(tokens, w)], 2,
                )  # fmt: skip

        def rotary() -> Case:
            angles = 6 * self.random(1, tokens, d // 2).repeat(1, 1, 2)
            query, key = self.random(1, tokens, heads, d), self.random(1, tokens, key_heads, d)
            return (
                lambda q, k, c, s: apply_rotary_pos_emb(q.transpose(1, 2), k.transpose(1, 2), c, s),
                lambda q, k, c, s: self.kernels.rotary.apply(q.transpose(1, 2), k.transpose(1, 2), c, s),
                [query, key, angles.cos(), angles.sin()], 2,
            )  # fmt: skip

        made[f"rotary {heads}/{key_heads} x {d}"] = rotary
        return {name: make() for name, make in made.items() if name.startswith(only)}

    def norm(self, kind: Any, form: tuple[float, bool], shape: tuple[int, ...], wants: int) -> "Case":
        module = kind(shape[-1], eps=1e-6).to(self.device)
        return (
            lambda x, w: torch.func.functional_call(module, {"weight": w}, (x,)),
            lambda x, w: self.kernels.rms_norm.apply(x, w, 1e-6, *form),
            [self.random(*shape), 0.6 + 0.2 * self.random(shape[-1])],
            wants,
        )

    def time(self, call: Callable[[], Any], calls: int) -> dict[str, float]:
        """Microseconds of the device a call (its kernels, one after the other) and of the host until it is free again."""
        for _ in range(3):
            call()
        self.wait()
        host = []
        for _ in range(5):
            began = time.perf_counter()
            for _ in range(calls):
                call()
            host.append(1e6 * (time.perf_counter() - began) / calls)
            self.wait()
        if self.smoke:
            return {"us": 0.0, "host_us": statistics.median(host), "kernels": 0}
        with profile(activities=[ProfilerActivity.CUDA]) as prof:
            for _ in range(calls):
                call()
            self.wait()
        events = [e for e in prof.events() if e.device_type == DeviceType.CUDA]
        us = sum(e.time_range.elapsed_us() for e in events) / calls
        return {"us": us, "host_us": statistics.median(host), "kernels": len(events) / calls}

    def wait(self) -> None:
        if not self.smoke:
            torch.cuda.synchronize()


def run(function: Any, inputs: list[Tensor], wants: int, dtype: torch.dtype) -> list[Tensor]:
    """Outputs and gradients; the cotangent is the same in every precision."""
    leaves = [x.to(dtype).requires_grad_(i < wants) for i, x in enumerate(inputs)]
    out = function(*leaves)
    outputs = out if isinstance(out, tuple) else (out,)
    random = torch.Generator(inputs[0].device).manual_seed(7)
    cotangents = [
        torch.randn(y.shape, generator=random, device=y.device).to(torch.bfloat16).to(y.dtype) for y in outputs
    ]
    return [y.detach() for y in outputs] + list(torch.autograd.grad(outputs, leaves[:wants], cotangents))


def error(found: list[Tensor], right: list[Tensor]) -> float:
    """The largest relative L2 error of outputs and gradients."""
    return max(float((a.double() - b.double()).norm() / b.double().norm()) for a, b in zip(found, right, strict=True))


def ops(bench: Bench) -> list[dict[str, Any]]:
    rows = []
    for tokens in (6,) if bench.smoke else (258, 2064, 16384):
        for name in list(bench.cases(1)):
            own, ours, inputs, wants = bench.cases(tokens, name)[name]
            inputs = [x.to(bench.low).float() for x in inputs]  # what both precisions can hold
            right = run(own, inputs, wants, torch.float64)  # transformers' norms are float32 inside, whatever they get
            full, low, eager = (
                error(run(f, inputs, wants, dtype), right)
                for f, dtype in ((ours, torch.float32), (ours, bench.low), (own, bench.low))
            )
            wrong = run(ours, [1.1 * inputs[0], *inputs[1:]], wants, torch.float32)
            del right
            row: dict[str, Any] = {"op": name, "tokens": tokens, "error": {"float32": full, "low": low, "eager": eager}}
            row["control"] = error(wrong, run(own, inputs, wants, torch.float32))
            row["ok"] = full < 1e-6 and low <= 1.5 * eager < row["control"]
            del wrong
            for way, f in (("own", own), ("kernel", ours)):
                row[way] = timed(bench, f, inputs, wants)
            rows.append(row)
    return rows


def timed(bench: Bench, f: Any, inputs: list[Tensor], wants: int) -> dict[str, Any]:
    leaves = [x.to(bench.low).requires_grad_(i < wants) for i, x in enumerate(inputs)]
    out = f(*leaves)
    outputs = out if isinstance(out, tuple) else (out,)
    cotangents = [torch.ones_like(y) for y in outputs]
    calls = 1 if bench.smoke else 20
    forward = bench.time(lambda: f(*leaves), calls)
    backward = bench.time(lambda: torch.autograd.grad(outputs, leaves[:wants], cotangents, retain_graph=True), calls)
    size = [x.numel() * x.element_size() for x in leaves]
    written = sum(y.numel() * y.element_size() for y in outputs)
    least = {"forward": sum(size) + written, "backward": sum(size) + written + sum(size[:wants])}
    found = {"forward": forward, "backward": backward}
    for way, of in found.items():
        of["GB_s"] = least[way] / of["us"] / 1e3 if of["us"] else 0.0
    return found


def sweep(bench: Bench) -> list[dict[str, Any]]:
    """Microseconds of forward and backward by block and warps, at 8,192 and 258 tokens."""
    from dynotune.model.elementwise import triton_gate, triton_norm, triton_rotary

    rows: list[dict[str, Any]] = []
    tile = triton_norm.tile
    for tokens in (6,) if bench.smoke else (8192, 258):

        def note(op: str, setting: str, tokens: int = tokens) -> None:
            name, (_, ours, inputs, wants) = next(
                iter(bench.cases(tokens, op).items())
            )  # the first: its weight is frozen
            found = timed(bench, ours, inputs, wants)
            times = {way: found[way]["us"] for way in ("forward", "backward")}
            rows.append({"op": name, "tokens": tokens, "setting": setting, **times})

        for block in (1024, 2048, 4096, 8192):
            for warps in (4, 8):
                triton_gate.BLOCK, triton_gate.WARPS = block, warps
                note("SwiGLU", f"block {block}, {warps} warps")
        triton_gate.BLOCK, triton_gate.WARPS = 2048, 4
        for warps in (1, 2, 4, 8):
            triton_rotary.WARPS = warps
            note("rotary", f"{warps} warps")
        triton_rotary.WARPS = 4
        for elements in (1024, 2048, 4096, 8192):
            for warps in (2, 4, 8, 16):

                def other(d: int, elements: int = elements, warps: int = warps) -> tuple[int, int, int]:
                    _, block, _ = tile(d)
                    return max(1, elements // block), block, warps

                triton_norm.tile = other
                note("Qwen2RMSNorm", f"{elements} elements, {warps} warps")
                note("Qwen2RMSNorm of", f"{elements} elements, {warps} warps")
        triton_norm.tile = tile
    return rows


class Model:
    """The decoder with LoRA, packed attention and the head, and a step's forward and backward."""

    def __init__(self, bench: Bench, layers: int | None = None, dtype: torch.dtype | None = None) -> None:
        self.bench = bench
        shape = {**bench.shape, **({"num_hidden_layers": layers} if layers else {})}
        torch.manual_seed(0)
        with bench.device:
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen2", **shape), dtype=dtype or bench.low)
            config = LoraConfig(
                r=32, lora_alpha=64, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
            )
            model = get_peft_model(model, config)
        for name, p in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(p, std=0.02)
        self.model: Any = model.train()
        self.lora = install_lora(self.model, dtype or bench.low)
        assert not self.lora.needs_autocast
        found = find_head(self.model, torch.arange(1, 17, device=bench.device))
        assert found.head is not None, found.why_not
        self.head, self.objective = found.head, SFTObjective(SFTObjectiveConfig())
        self.attention = packed_attention(self.model)

    def step(self, tokens: int, clear: bool = True) -> Callable[[], Tensor]:
        random = np.random.default_rng(tokens)
        lengths = [DOCUMENT] * (tokens // DOCUMENT) + ([tokens % DOCUMENT] if tokens % DOCUMENT else [])
        rows = [random.integers(0, self.bench.shape["vocab_size"], n).astype(np.int32) for n in lengths]
        batch = pack([(ids, ids) for ids in rows], tokens, self.bench.device)

        def step() -> Tensor:
            loss, _ = self.head(hidden_states(self.model, batch), batch, self.objective)
            loss.backward()
            if clear:
                self.model.zero_grad(set_to_none=True)
            return loss.detach()

        return step

    def gradients(self, tokens: int) -> dict[str, Tensor]:
        loss = self.step(tokens, clear=False)()
        found = {"loss": loss, **{n: p.grad for n, p in self.model.named_parameters() if p.grad is not None}}
        self.model.zero_grad(set_to_none=True)
        return found


def model(bench: Bench) -> dict[str, Any]:
    made = Model(bench)
    found: dict[str, Any] = {"rows": [], "gaps": {}}
    before: dict[int, dict[str, Tensor]] = {}
    sizes = (64,) if bench.smoke else (258, 2064, 8192)
    kernels: Any = None
    for way in ("own", "kernels", "own again"):
        if way == "kernels":
            bench.wait()
            began = time.perf_counter()
            kernels = install(made.model, bench.low)
            bench.wait()
            found |= {"install_s": time.perf_counter() - began, "lines": kernels.lines()}
        elif kernels is not None:
            found["calls_to_own"] = kernels.calls_to_own
            kernels.uninstall()
        for tokens in sizes:
            if tokens < 3000:
                gradients = made.gradients(tokens)
                if tokens in before:
                    gaps = {n: error([g], [before[tokens][n]]) for n, g in gradients.items()}
                    found["gaps"][f"{way}, {tokens}"] = {"loss": gaps.pop("loss"), "worst_gradient": max(gaps.values())}
                else:
                    before[tokens] = gradients
            found["rows"].append({"way": way, "tokens": tokens, **step_times(bench, made.step(tokens))})
    gaps = found["gaps"]
    unclaimed = sum(shared.unclaimed for shared in made.lora.copies.shared)
    found["unclaimed"] = unclaimed
    found["ok"] = not found["calls_to_own"] and not unclaimed and all(
        gap["loss"] < 2e-3 for gap in gaps.values()) and len(found["lines"]) == 1  # fmt: skip
    return found


def step_times(bench: Bench, step: Callable[[], Any]) -> dict[str, Any]:
    for _ in range(3):
        step()
    bench.wait()
    if not bench.smoke:
        torch.cuda.reset_peak_memory_stats()
    times, host = [], []
    for _ in range(3 if bench.smoke else 10):
        began = time.perf_counter()
        step()
        host.append(1e3 * (time.perf_counter() - began))
        bench.wait()
        times.append(1e3 * (time.perf_counter() - began))
    found: dict[str, Any] = {
        "ms": statistics.median(times), "host_ms": statistics.median(host), "spread": [min(times), max(times)],
    }  # fmt: skip
    if bench.smoke:
        return found
    found["peak_GiB"] = torch.cuda.max_memory_allocated() / 2**30
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
        step()
        bench.wait()
    kernels = [e for e in prof.events() if e.device_type == DeviceType.CUDA]
    eager = [e for e in kernels if "elementwise_kernel" in e.name or "reduce_kernel" in e.name or "CatArray" in e.name]
    own = [e for e in kernels if e.name.startswith("dynotune_")]
    ms = {
        name: sum(e.time_range.elapsed_us() for e in of) / 1e3
        for name, of in (("kernel", kernels), ("eager", eager), ("own", own))
    }
    return found | {"launches": len(kernels), "own_launches": len(own), **{f"{k}_ms": v for k, v in ms.items()}}


def layers(bench: Bench) -> dict[str, Any]:
    """Two layers: error against float32 without and with kernels; recomputed, and compiled as one graph each."""
    torch.backends.cuda.matmul.allow_tf32 = False
    tokens = 64 if bench.smoke else 258
    made, exact = Model(bench, layers=2), Model(bench, layers=2, dtype=torch.float32)
    exact.model.load_state_dict({n: p.float() for n, p in made.model.state_dict().items()})
    reference = exact.gradients(tokens)
    del exact
    own = made.gradients(tokens)
    kernels = install(made.model, bench.low)
    right = made.gradients(tokens)
    errors = [{n: error([g[n]], [reference[n]]) for n in reference} for g in (own, right)]
    found: dict[str, Any] = {"error": {"own": rms(errors[0]), "kernels": rms(errors[1])}}
    made.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    again = made.gradients(tokens)
    found["recomputed"] = max(error([again[n]], [right[n]]) for n in right)
    made.model.gradient_checkpointing_disable()
    for layer in made.model.get_base_model().model.layers:
        layer.compile(fullgraph=True, dynamic=False)
    again = made.gradients(tokens)
    found["compiled"] = max(error([again[n]], [right[n]]) for n in right)
    found["calls_to_own"] = kernels.calls_to_own
    precise = found["error"]["kernels"] <= 1.5 * found["error"]["own"]
    found["ok"] = precise and found["recomputed"] < 1e-2 and found["compiled"] < 5e-2
    return found


def rms(errors: dict[str, float]) -> float:
    return (sum(e * e for e in errors.values()) / len(errors)) ** 0.5


PARTS: dict[str, Callable[[Bench], Any]] = {"ops": ops, "model": model, "layers": layers, "sweep": sweep}


def show(result: dict[str, Any]) -> int:
    ok = True
    print(f"\n{result['hardware']}, torch {result['versions']['torch']}, triton {result['versions']['triton']}")
    for part in PARTS:
        found = result.get(part, [])
        if isinstance(found, dict) and "failed" in found:
            ok = False
            print(f"{part} FAILED:\n{found['stderr'][-1500:]}")
            result[part] = {} if part in ("model", "layers") else []
    for row in result.get("ops", []):
        ok &= row["ok"]
        times = "  ".join(
            f"{way} {row['own'][way]['us']:8.1f} -> {row['kernel'][way]['us']:7.1f} us,"
            f" {row['kernel'][way]['GB_s']:5.0f} GB/s"
            f" (host {row['own'][way]['host_us']:4.0f} -> {row['kernel'][way]['host_us']:3.0f} us)"
            for way in ("forward", "backward")
        )
        errors = row["error"]
        print(
            f"{'ok ' if row['ok'] else 'BAD'} {row['op']:30} {row['tokens']:6} {times}  float32 {errors['float32']:.1e},"
            f" low/eager {errors['low'] / errors['eager']:.2f}"
        )
    best: dict[Any, Any] = {}
    for row in result.get("sweep", []):
        for way in ("forward", "backward"):
            key = row["op"], row["tokens"], way
            best[key] = min(best.get(key, (row[way], "")), (row[way], row["setting"]))
    for (op, tokens, way), (us, setting) in best.items():
        print(f"best of the sweep: {op:30} {tokens:6} {way:8} {us:8.1f} us: {setting}")
    if layers_found := result.get("layers"):
        ok &= layers_found["ok"]
        print(f"{'ok ' if layers_found['ok'] else 'BAD'} two layers: {layers_found}")
    if model_found := result.get("model"):
        ok &= model_found["ok"]
        print(*model_found["lines"], sep="\n")
        print(
            f"{'ok ' if model_found['ok'] else 'BAD'} model: installed in {model_found['install_s']:.1f} s, calls to own"
            f" {model_found['calls_to_own']}, unclaimed {model_found['unclaimed']}, gaps {model_found['gaps']}"
        )
        heads = ("way", "tokens", "ms", "host", "all ms", "eager ms", "ours ms", "launches", "GiB")
        print("".join(f"{head:>10}" for head in heads))
        for r in model_found["rows"]:
            numbers = [r["ms"], r["host_ms"], *(r.get(f"{k}_ms", 0.0) for k in ("kernel", "eager", "own"))]
            ends = f"{r.get('launches', 0):10}{r.get('peak_GiB', 0.0):10.1f}"
            print(f"{r['way']:>10}{r['tokens']:10}{''.join(f'{n:10.2f}' for n in numbers)}{ends}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
