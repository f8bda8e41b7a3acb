"""Compiled decoder layers beside our own kernels, on a GPU: gradients, time, host, memory, graphs, seconds cold and warm.

    python -m benchmarks.gpu_compile --output OUT.json
    python -m benchmarks.gpu_compile --output OUT.json --parts lora --tokens 258 --ways "kernels,compiled,kernels again"

Packed micro-batches through all layers of the shape of Qwen2.5-7B with random weights, forward and backward from a fixed
gradient of the hidden states; the LM head, the loss and the update are other parts' work. LoRA r=32 on all linears of a
bfloat16 base; full fine-tuning on fewer layers, since float32 weights and gradients of all of them leave no room. Ways:
`kernels` is fused LoRA with our elementwise kernels, as Dynotune runs today; `fused LoRA` the same without those; `compiled`
is fused LoRA in compiled layers; `compiled, PEFT's LoRA` leaves LoRA to the compiler; `compiled, no guards` is `compiled`
with PyTorch's `skip_guard_eval_unsafe`, which shows what guards cost the host and is not for use. Full: `kernels` and
`compiled` under autocast. Cold: an empty compile cache; warm: another process that finds it. 258 tokens (2 documents of 129)
run in their rung of 320. The exit code is 1 if a gradient is wrong or a layer was compiled again. `--tiny` runs on the CPU
without Inductor, which checks this script and nothing else.

Prediction for LoRA. 16,384 tokens: Inductor joins residual additions with norms; against our kernels it saves one or two
passes over the hidden states at each of 2 norms, forward and backward, about 100 kB a token and layer, so
28 x 16,384 x 100 kB / 4.3 TB/s = 11 ms of about 800 (1 %); against layers as written about 60 ms (7 %). Its products of LoRA
lose the scale that ours fold in: 28 x 7 small passes, about 2 ms. 2,048 tokens: 1 %, within noise. 258 tokens: the host
decides; each layer costs guards and a wrapper, about 0.15 ms forward and 0.1 ms backward, in place of about 60 launches
of 5 microseconds: 28 x (0.25 - 0.3) ms, so nothing to 1 ms gained. Memory: the compiler keeps what is dear to compute again,
about as much as our functions. A graph takes 5 to 10 s cold and 2 to 3 s warm (tracing is done each time).
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
from dynotune.model import elementwise, lora
from dynotune.model.attention import hidden_states, packed_attention
from dynotune.model.compiled import Regions, compile_layers, decoder_layers
from dynotune.model.compiled.cache import VARIABLE
from dynotune.model.packed import PackedBatch, pack

SECONDS = 190
"""For everything; what would begin later is left out and says so."""

QWEN_7B = {
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "vocab_size": 1024, "max_position_embeddings": 32768, "rope_theta": 1e6,
}  # fmt: skip
"""With few tokens in its vocabulary, since no head runs."""

TINY = {
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 512,
}  # fmt: skip
BF16 = torch.bfloat16
FAILURES = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, OSError, RuntimeError, TypeError,
            ValueError, subprocess.SubprocessError, torch._dynamo.exc.TorchDynamoException)  # fmt: skip


@dataclass(frozen=True)
class Way:
    name: str
    fused: bool = True
    kernels: bool = False
    compiled: bool = False
    skip_guards: bool = False


PARTS = ("gradients", "lora", "full", "warm")

WAYS = [
    Way("kernels", kernels=True),
    Way("fused LoRA"),
    Way("compiled", compiled=True),
    Way("compiled, no guards", compiled=True, skip_guards=True),
    Way("compiled, PEFT's LoRA", fused=False, compiled=True),
    Way("PEFT", fused=False),
    Way("kernels again", kernels=True),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="where the JSON goes")
    parser.add_argument("--commit", default="")
    parser.add_argument("--parts", default=",".join(PARTS), help="with commas; `warm` finds the cache of `lora`")
    parser.add_argument("--ways", default=",".join(way.name for way in WAYS), help="of the part `lora`, with commas")
    parser.add_argument("--layers", type=int, default=28, help="of the LoRA model")
    parser.add_argument("--full-layers", type=int, default=8)
    parser.add_argument("--tokens", default="16384,2048,258")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--attention", default="varlen", help="a backend of `dynotune.model.attention.backends`")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--warm", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    bench = Bench(args)
    if args.warm:
        args.output.write_text(json.dumps(bench.first_steps(layers=2), indent=1))
        return 0
    result: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]), "commit": args.commit,
        "hardware": "cpu" if args.tiny else torch.cuda.get_device_name(),
        "versions": {p: metadata.version(p) for p in ("torch", "transformers", "peft")}
        | {"python": platform.python_version(), "triton": _version("triton")},
        "shape": bench.shape, "attention": args.attention, "compiler": bench.compiler,
    }  # fmt: skip
    args.output.parent.mkdir(parents=True, exist_ok=True)
    for name in args.parts.split(","):
        part: Callable[[], Any] = getattr(bench, name)
        began = time.perf_counter()
        try:
            result[name] = part()
        except FAILURES as error:
            result[name] = {"failed": f"{type(error).__name__}: {str(error)[:600]}"}
        result[f"{name}_seconds"] = round(time.perf_counter() - began, 1)
        args.output.write_text(json.dumps(result, indent=1))  # a part that fails leaves the earlier ones
        print(f"{name}: {result[f'{name}_seconds']} s {_failed(result[name])}", flush=True)
        if not args.tiny:
            torch.cuda.empty_cache()
    wrong = show(result)
    print(f"{len(wrong)} wrong", *wrong, sep="\n")
    return 1 if wrong else 0


class Bench:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.tiny, self.repeats = args, args.tiny, args.repeats
        self.until = time.perf_counter() + args.seconds
        self.device = torch.device("cpu" if args.tiny else "cuda")
        self.shape = TINY if args.tiny else {**QWEN_7B, "num_hidden_layers": args.layers}
        self.compiler = "aot_eager" if args.tiny else "inductor"
        self.tokens = [128, 64] if args.tiny else [int(n) for n in args.tokens.split(",")]
        self.cache = os.environ.get(VARIABLE) if args.warm else tempfile.mkdtemp(prefix="gpu_compile_")

    def gradients(self) -> dict[str, Any]:
        """Two layers: errors of hidden states and adapter gradients against float32, at most 1.5 times PEFT's."""
        self._cache_in("gradients")
        tokens = 64 if self.tiny else 320
        batch = self.batch(tokens, [tokens // 2, tokens // 3])
        model = self.model(layers=2, dtype=BF16)
        exact = self.model(layers=2, dtype=torch.float32)
        exact.load_state_dict({k: v.float() for k, v in model.state_dict().items()})
        right = self.outcome(exact, batch, None)
        errors = {}
        for way in [one for one in WAYS if one.name != "kernels again"]:
            with self.installed(model, way) as (regions, autocast):
                found = self.outcome(model, batch, autocast)
            errors[way.name] = {kind: _worst(found, right, kind) for kind in ("hidden", "lora_A", "lora_B")}
            errors[way.name]["graphs"] = regions.report().graphs if regions else 0
        limit = {kind: 1.5 * errors["PEFT"][kind] for kind in ("hidden", "lora_A", "lora_B")}
        wrong = [name for name, one in errors.items() if any(one[kind] > limit[kind] for kind in limit)]
        for p in (p for n, p in model.named_parameters() if "lora_B" in n):
            p.data *= 1.25
        control = self.outcome(model, batch, self.autocast())
        caught = all(_worst(control, right, kind) > limit[kind] for kind in limit)
        return {"ok": not wrong and caught, "wrong": wrong, "errors": errors, "control_is_caught": caught}

    def lora(self) -> list[dict[str, Any]]:
        """All layers with an adapter: each way at each token count."""
        self._cache_in("cold")
        model, rows = self.model(self.shape["num_hidden_layers"], BF16), []
        few = {
            "compiled, no guards": self.tokens[-1:],
            "compiled, PEFT's LoRA": self.tokens[:1],
            "PEFT": self.tokens[:1],
        }
        for way in (one for one in WAYS if one.name in self.args.ways.split(",")):
            rows += self.measured(model, way, few.get(way.name, self.tokens))
        return rows

    def full(self) -> list[dict[str, Any]]:
        """Full fine-tuning of fewer layers: float32 weights under autocast."""
        self._cache_in("full")
        layers = min(self.args.full_layers, self.shape["num_hidden_layers"])
        model, rows = self.model(layers, torch.float32, adapter=False), []
        for way in (Way("kernels", kernels=True), Way("compiled", compiled=True), Way("as written")):
            rows += self.measured(model, way, self.tokens[:1])
        return rows

    def warm(self) -> dict[str, Any]:
        """First steps of two layers in another process, which finds the compile cache. Graphs do not depend on how many
        layers there are."""
        part = self.args.output.with_suffix(".warm")
        command = [sys.executable, __file__, "--warm", "--output", str(part), "--tokens", self.args.tokens]
        command += ["--attention", self.args.attention] + ["--tiny"] * self.tiny
        environment = {**os.environ, VARIABLE: str(Path(str(self.cache)) / "cold")}
        subprocess.run(command, check=True, env=environment, timeout=max(20.0, self.left), capture_output=True)
        found: dict[str, Any] = json.loads(part.read_text())
        part.unlink()
        return found

    def first_steps(self, layers: int) -> dict[str, Any]:
        """Seconds of the first step of each token count, and of every graph in it."""
        model = self.model(layers, BF16)
        steps = {}
        with self.installed(model, WAYS[2]) as (regions, autocast):
            assert regions is not None
            for tokens in self.tokens:
                batch = self.batch_of(tokens)
                began = time.perf_counter()
                self.outcome(model, batch, autocast)
                self.wait()
                steps[str(tokens)] = round(time.perf_counter() - began, 3)
            return {"first_step_seconds": steps, "report": regions.report().to_json()}

    def measured(self, model: Any, way: Way, counts: list[int]) -> list[dict[str, Any]]:
        """One row a token count. What fails is a row that says so."""
        rows: list[dict[str, Any]] = []
        with self.installed(model, way) as (regions, autocast):
            for tokens in counts:
                row: dict[str, Any] = {"way": way.name, "tokens": tokens}
                rows.append(row)
                if self.left < 5:
                    row["failed"] = "not tried: no time left"
                    continue
                before = regions.report().seconds if regions else 0.0
                try:
                    row |= self.time(model, self.batch_of(tokens), autocast, way.skip_guards)
                except FAILURES as error:
                    row["failed"] = f"{type(error).__name__}: {str(error)[:300]}"
                if regions:
                    row["compile_seconds"] = round(regions.report().seconds - before, 2)
            if regions:
                rows[-1]["report"] = regions.report().to_json()
        return rows

    def installed(self, model: Any, way: Way) -> "Installed":
        return Installed(self, model, way)

    def time(
        self, model: Any, batch: PackedBatch, autocast: Callable[[], Any] | None, skip_guards: bool
    ) -> dict[str, Any]:
        """The first call, then medians."""
        began = time.perf_counter()
        first = self.outcome(model, batch, autocast)
        self.wait()
        row: dict[str, Any] = {"first_step_seconds": round(time.perf_counter() - began, 3)}
        row["gradient_norm"] = float(torch.stack([g.float().norm() for n, g in first.items() if n != "hidden"]).norm())
        del first
        gradient_TD = torch.randn(len(batch.ids_T), self.shape["hidden_size"], device=self.device)

        def step() -> None:
            with autocast() if autocast else nullcontext():
                hidden_TD = hidden_states(model, batch)
            hidden_TD.backward(gradient_TD.to(hidden_TD.dtype))  # type: ignore[no-untyped-call]
            model.zero_grad(set_to_none=True)

        for _ in range(2):
            step()
        stance = torch.compiler.set_stance(skip_guard_eval_unsafe=True) if skip_guards else nullcontext()
        with stance:
            step()
            self.wait()
            if not self.tiny:
                torch.cuda.reset_peak_memory_stats()
            times, host = [], []
            for _ in range(self.repeats):
                began = time.perf_counter()
                step()
                host.append(1e3 * (time.perf_counter() - began))
                self.wait()
                times.append(1e3 * (time.perf_counter() - began))
                if self.left < 3:
                    break
        row |= {"ms": statistics.median(times), "spread": [min(times), max(times)], "host_ms": statistics.median(host)}
        if not self.tiny:
            row["peak_GiB"] = torch.cuda.max_memory_allocated() / 2**30
        return row

    def outcome(self, model: Any, batch: PackedBatch, autocast: Callable[[], Any] | None) -> dict[str, Tensor]:
        """Hidden states and gradients."""
        model.zero_grad(set_to_none=True)
        with autocast() if autocast else nullcontext():
            hidden_TD = hidden_states(model, batch)
        generator = torch.Generator(self.device).manual_seed(1)
        weights_TD = torch.randn(hidden_TD.shape, generator=generator, device=self.device)
        hidden_TD.backward(weights_TD.to(hidden_TD.dtype))  # type: ignore[no-untyped-call]
        found = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        model.zero_grad(set_to_none=True)
        return {"hidden": hidden_TD.detach(), **found}

    def autocast(self) -> Callable[[], Any]:
        return lambda: torch.autocast(self.device.type, BF16)

    def model(self, layers: int, dtype: torch.dtype, adapter: bool = True) -> Any:
        torch.manual_seed(0)
        shape = {**self.shape, "num_hidden_layers": layers}
        with self.device:
            config = AutoConfig.for_model("qwen2", **shape)
            model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
            if adapter:
                settings = LoraConfig(r=32, lora_alpha=64, lora_dropout=0.0, target_modules="all-linear")
                model = get_peft_model(model, settings)
        for name, p in model.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(p, std=0.02)
            if "lm_head" in name:
                p.requires_grad_(False)
        return model.train()

    def batch_of(self, tokens: int) -> PackedBatch:
        """Lognormal lengths, median 200; of few tokens two documents in the next rung."""
        if tokens == 258:
            return self.batch(320, [129, 129])
        draws, lengths = np.random.default_rng(0), []
        while (left := tokens - sum(lengths)) > 0:
            lengths.append(min(left, max(1, int(draws.lognormal(np.log(200), 1.0)))))
        return self.batch(tokens, lengths)

    def batch(self, tokens: int, lengths: list[int]) -> PackedBatch:
        draws = np.random.default_rng(0)
        documents = [(ids := draws.integers(1, 500, n, dtype=np.int32), ids) for n in lengths]
        return pack(documents, tokens, self.device)

    @property
    def left(self) -> float:
        return self.until - time.perf_counter()

    def wait(self) -> None:
        if not self.tiny:
            torch.cuda.synchronize()

    def _cache_in(self, name: str) -> None:
        os.environ[VARIABLE] = str(Path(str(self.cache)) / name)


class Installed:
    """A way in a model, inside a `with`: the compiled regions or None, and autocast or None where it is not needed."""

    def __init__(self, bench: Bench, model: Any, way: Way) -> None:
        self.bench, self.model, self.way = bench, model, way

    def __enter__(self) -> tuple[Regions | None, Callable[[], Any] | None]:
        self.stack = ExitStack()
        autocast: Callable[[], Any] | None = self.bench.autocast()
        if self.way.fused and hasattr(self.model, "peft_config"):
            adapters = lora.install(self.model, BF16)
            self.stack.callback(adapters.uninstall)
            assert adapters.linears, adapters.lines()
            if not adapters.needs_autocast:
                autocast = None
        if self.way.kernels:
            engaged = elementwise.install(self.model, BF16)
            self.stack.callback(engaged.uninstall)
            assert self.bench.tiny or any(engaged.fused.values()), engaged.lines()
        self.stack.enter_context(packed_attention(self.model, self.bench.args.attention))
        regions = None
        if self.way.compiled:
            torch._dynamo.reset()
            regions = compile_layers(decoder_layers(self.model), self.bench.compiler)
            self.stack.callback(regions.uninstall)
        return regions, autocast

    def __exit__(self, *_: object) -> None:
        self.stack.close()


def show(result: dict[str, Any]) -> list[str]:
    """The table; returns what is wrong."""
    there = {name: result[name] for name in PARTS if name in result}
    wrong = [f"{name}: {_failed(part)}" for name, part in there.items() if _failed(part)]
    there = {name: part for name, part in there.items() if not _failed(part)}
    if checked := there.get("gradients"):
        for name, one in checked["errors"].items():
            print(f"{name:24} errors: " + "  ".join(f"{kind} {value:.2e}" for kind, value in one.items()))
        wrong += [f"gradients of {name}" for name in checked["wrong"]]
        wrong += [] if checked["control_is_caught"] else ["gradients: the negative control was not caught"]
    print(f"{'':31} {'tokens':>6} {'ms':>9} {'host ms':>8} {'GiB':>6} {'first s':>8} {'compile s':>9}")
    for part in ("lora", "full"):
        for row in there.get(part, []):
            name = f"{part}: {row['way']}"
            if "failed" in row:
                print(f"{name:31} {row['tokens']:>6} {row['failed'][:90]}")
                continue
            print(
                f"{name:31} {row['tokens']:>6} {row['ms']:9.2f} {row['host_ms']:8.2f} {row.get('peak_GiB', 0):6.1f}"
                f" {row['first_step_seconds']:8.2f} {row.get('compile_seconds', 0):9.2f}"
            )
            wrong += _faults(name, row.get("report"))
    if warm := there.get("warm"):
        report = warm["report"]
        print(
            f"warm: first steps {warm['first_step_seconds']} s; {report['graphs']} graphs in"
            f" {report['seconds']:.1f} s, {report['found_on_disk']} found on disk"
        )
    return wrong


def _faults(name: str, report: dict[str, Any] | None) -> list[str]:
    if report is None:
        return []
    print(
        f"{'':31} {report['graphs']} graphs in {report['seconds']:.1f} s: {[c['seconds'] for c in report['compilations']]}"
    )
    again = [f"{name}: compiled again: {c['layer']}: {c['reason']}" for c in report["compilations"] if c["again"]]
    return again + [f"{name}: not compiled: {one}" for one in report["eager"]]


def _failed(part: Any) -> str:
    return str(part.get("failed", "")) if isinstance(part, dict) else ""


def _worst(found: dict[str, Tensor], right: dict[str, Tensor], kind: str) -> float:
    """The largest relative error of the tensors whose name holds `kind`."""
    names = [name for name in right if kind in name]
    assert names
    assert found.keys() == right.keys()
    return max(float((found[n].float() - right[n].float()).norm() / right[n].float().norm()) for n in names)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
