"""Packed attention on a GPU: error and gradients against float32, isolation, the examination, host syncs, kernels, time.

    python benchmarks/gpu_attention.py --out OUT

The exit code is 1 if a check of correctness fails. `--smoke` runs tiny shapes on the CPU, where the reference stands in for
the kernel: it checks this script and nothing else. `--large` also examines a random model of Qwen2.5-7B's shape.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
from tests.tiny import tiny_model

from dynotune.model.attention import examine, hidden_states, packed_attention
from dynotune.model.attention.backends import reference, varlen
from dynotune.model.attention.segments import Segments, segments_of
from dynotune.model.forward import logits_of_document
from dynotune.model.packed import pack

BF16 = torch.bfloat16
HEADS = [(28, 4, 128, None), (16, 8, 64, None), (8, 4, 256, None), (28, 4, 128, 256), (16, 16, 64, 33), (8, 1, 128, 1)]
"""Query heads, key heads, head dimension, window."""

MODELS: dict[str, dict[str, Any]] = {
    "qwen2": {},
    "llama": {},
    "mistral": {"sliding_window": 16},
    "gemma2": {"sliding_window": 16, "query_pre_attn_scalar": 64, "attn_implementation": "eager"},
    "gemma3_text": {"sliding_window": 512, "query_pre_attn_scalar": 64},
    "qwen3_moe": {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128},
}
SHAPE = {
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "head_dim": 64,
}
SEVEN_B = {
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28, "head_dim": 128,
    "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 16384,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu_attention.json")
    parser.add_argument("--commit", default="")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--large", action="store_true")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False  # the reference is float32
    bench = Bench(torch.device("cpu" if args.smoke else "cuda"), args.smoke)
    result: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]), "commit": args.commit,
        "hardware": "cpu" if args.smoke else torch.cuda.get_device_name(),
        "versions": {p: metadata.version(p) for p in ("torch", "transformers")} | {"python": platform.python_version()},
    }  # fmt: skip
    parts: dict[str, Callable[[], Any]] = {
        "kernel": bench.kernel, "isolation": bench.isolation, "examination": bench.examination, "model": bench.model,
        "planted": bench.planted, "syncs": bench.syncs, "compiled": bench.compiled, "times": bench.times,
    }  # fmt: skip
    if args.large:
        parts["large"] = bench.large
    args.out.mkdir(parents=True, exist_ok=True)
    failed = []
    for name, part in parts.items():
        result[name] = rows = part()
        failed += [f"{name}: {row}" for row in rows if not row.get("ok", True)]
        (args.out / "gpu_attention.json").write_text(json.dumps({**result, "failed": failed}, indent=1))
        print(f"{name}: done", flush=True)
    for name in parts:
        for row in result[name]:
            print(name, *(f"{key}={shown(value)}" for key, value in row.items()))
    print(f"{len(failed)} failed", *failed, sep="\n")
    return 1 if failed else 0


class Bench:
    def __init__(self, device: torch.device, smoke: bool) -> None:
        self.device, self.smoke = device, smoke
        self.generator = torch.Generator(device).manual_seed(0)

    def lengths(self, tokens: int, seed: int = 0) -> list[int]:
        """Lognormal documents (median 200) that fill most of `tokens`, empty segments among them, and the padding."""
        generator, made = np.random.default_rng(seed), [1, 0, 0]
        while sum(made) < 0.95 * tokens:
            made.append(int(min(generator.lognormal(np.log(200), 0.9) + 1, 0.96 * tokens - sum(made) + 1)))
        return [*made, tokens - sum(made)]

    def qkv(self, tokens: int, heads: int, key_heads: int, dim: int) -> list[Tensor]:
        shapes = [(tokens, heads, dim), (tokens, key_heads, dim), (tokens, key_heads, dim)]
        return [torch.randn(s, device=self.device, generator=self.generator).to(BF16) for s in shapes]

    def segments(self, lengths: list[int]) -> Segments:
        return segments_of(torch.tensor([0, *lengths], device=self.device).cumsum(0).int(), lengths)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, segments: Segments, window: int | None) -> Tensor:
        scaling = q.shape[-1] ** -0.5
        if self.smoke:
            q, k, v = (x.transpose(0, 1) for x in (q, k, v))
            return reference.attend(q, k, v, segments.lengths, scaling, window, None)
        return varlen.attend(q, k, v, segments.boundaries_S1, segments.longest, scaling, window, None, None)

    def kernel(self) -> list[dict[str, Any]]:
        """Output and gradients in bf16 against float32, beside what the plain path's attention gets document by document."""
        tokens, rows = 256 if self.smoke else 8192, []
        for seed, (heads, key_heads, dim, window) in enumerate(HEADS[:2] if self.smoke else HEADS):
            lengths = self.lengths(tokens, seed)
            segments = self.segments(lengths)
            qkv, g = self.qkv(tokens, heads, key_heads, dim), self.qkv(tokens, heads, key_heads, dim)[0]

            def packed(q: Tensor, k: Tensor, v: Tensor, s: Segments = segments, w: int | None = window) -> Tensor:
                return self.attend(q, k, v, s, w)

            def plain(
                q: Tensor, k: Tensor, v: Tensor, n: tuple[int, ...] = segments.lengths, w: int | None = window
            ) -> Tensor:
                return attention_by_document(q, k, v, n, w)

            exact = outputs(plain, [x.float() for x in qkv], g.float())
            ours, theirs = errors(outputs(packed, qkv, g), exact), errors(outputs(plain, qkv, g), exact)
            rows.append({
                "heads": f"{heads}/{key_heads}x{dim}", "window": window, "segments": len(segments.lengths),
                "ours": ours, "plain": theirs, "ok": all(a <= 1.5 * b for a, b in zip(ours, theirs, strict=True)),
            })  # fmt: skip
        return rows

    def isolation(self) -> list[dict[str, Any]]:
        """One document changes: every other document's output is equal in every bit. The gradients of queries are sums of
        atomic additions: how far the same call scatters is shown beside them."""
        tokens, rows = 256 if self.smoke else 8192, []
        for heads, key_heads, dim, window in HEADS[:1] if self.smoke else HEADS:
            lengths = self.lengths(tokens, 3)
            segments, changed = self.segments(lengths), 3
            qkv, other = self.qkv(tokens, heads, key_heads, dim), self.qkv(tokens, heads, key_heads, dim)
            g = self.qkv(tokens, heads, key_heads, dim)[0]
            start = sum(lengths[:changed])
            inside = torch.zeros(tokens, dtype=torch.bool, device=self.device)
            inside[start : start + lengths[changed]] = True
            mixed = [torch.where(inside[:, None, None], b, a) for a, b in zip(qkv, other, strict=True)]

            def packed(q: Tensor, k: Tensor, v: Tensor, s: Segments = segments, w: int | None = window) -> Tensor:
                return self.attend(q, k, v, s, w)

            before, again, after = (outputs(packed, x, g) for x in (qkv, qkv, mixed))
            equal = [torch.equal(a[~inside], b[~inside]) for a, b in zip(before, after, strict=True)]
            rerun = [torch.equal(a, b) for a, b in zip(before, again, strict=True)]
            seen = not torch.equal(before[0][inside], after[0][inside])
            rows.append({
                "heads": f"{heads}/{key_heads}x{dim}", "window": window, "output, dq, dk, dv equal": equal,
                "equal when run again": rerun, "ok": equal[0] and seen,
            })  # fmt: skip
        return rows

    def tiny(self, kind: str, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
        shape = {} if self.smoke else SHAPE
        return tiny_model(kind, **{**shape, **MODELS.get(kind, {}), **changes}).to(self.device, dtype)

    def autocast(self) -> Any:
        return torch.autocast(self.device.type, dtype=BF16)

    def examination(self) -> list[dict[str, Any]]:
        rows = []
        for kind in MODELS:
            for dtype, autocast in ((torch.float32, nullcontext), (torch.float32, self.autocast), (BF16, nullcontext)):
                model = self.tiny(kind, dtype)
                self.wait()
                began = time.perf_counter()
                verdict = examine(model, longest=200, autocast=autocast)
                self.wait()
                seconds = time.perf_counter() - began
                computed = "bf16" if autocast == self.autocast else str(dtype).removeprefix("torch.")
                # transformers 5.17 runs Gemma 2 eager only if asked, which it is here.
                fast = dtype == BF16 or autocast == self.autocast
                as_expected = (
                    self.smoke or (kind == "gemma2") or ("variable-length kernel" in str(verdict.says)) == fast
                )
                rows.append({
                    "model": kind, "weights": str(dtype).removeprefix("torch."), "computed": computed, "seconds": seconds,
                    "reason": verdict.reason, "says": verdict.says, "ok": verdict.reason is None and as_expected,
                })  # fmt: skip
        return rows

    def planted(self) -> list[dict[str, Any]]:
        """Negative controls: a leak and windows that are off by one, in the kernel's own call, in bf16."""
        right = reference.attend if self.smoke else varlen.attend
        holder: Any = reference if self.smoke else varlen

        def other_window(by: int) -> Any:
            at = 5 if self.smoke else 6
            return lambda *a: right(*a[:at], a[at] + by if a[at] else a[at], *a[at + 1 :])

        def leak(*a: Any) -> Tensor:
            ends = a[3]
            if self.smoke:
                return right(*a[:3], (ends[0], ends[1], ends[2] + ends[3], *ends[4:]), *a[4:])
            ends = torch.cat([ends[:3], ends[4:], ends[-1:]])  # documents 2 and 3 in one segment
            return right(*a[:3], ends, *a[4:])

        rows = []
        cases = [("mistral", "window - 1", other_window(-1)), ("mistral", "window + 1", other_window(1)),
                 ("gemma3_text", "window - 1", other_window(-1)), ("gemma3_text", "window + 1", other_window(1)),
                 ("llama", "leak", leak), ("qwen2", "leak", leak)]  # fmt: skip
        for kind, name, wrong in cases:
            try:
                holder.attend = wrong
                reason = examine(self.tiny(kind), longest=200, autocast=self.autocast).reason
            finally:
                holder.attend = right
            rows.append({"model": kind, "planted": name, "found": reason, "ok": reason is not None})
        return rows

    def model(self) -> list[dict[str, Any]]:
        """Hidden states and their gradients by all weights, in bf16 against float32, packed beside plain."""
        rows = []
        for kind in ("qwen2", "mistral", "gemma3_text"):
            model = self.tiny(kind)
            generator = np.random.default_rng(0)
            documents = [generator.integers(5, 350, n).astype(np.int32) for n in (129, 40, 3, 200, 77)]
            batch = pack([(ids, ids) for ids in documents], 512, self.device)
            real = sum(map(len, documents))
            g = torch.randn(real, model.config.hidden_size, device=self.device, generator=self.generator)

            def packed(model: Any = model, batch: Any = batch, real: int = real) -> Tensor:
                with packed_attention(model):
                    return hidden_states(model, batch)[:real]

            def plain(model: Any = model, documents: Any = documents) -> Tensor:
                seen: list[Tensor] = []
                hook = model.get_decoder().register_forward_hook(
                    lambda m, a, out: seen.append(out.last_hidden_state[0])
                )
                for ids in documents:
                    logits_of_document(model, torch.from_numpy(ids).long().to(self.device))
                hook.remove()
                return torch.cat(seen)

            exact, exact_packed = self.run(model, plain, g, nullcontext), self.run(model, packed, g, nullcontext)
            ours = errors(self.run(model, packed, g, self.autocast), exact)
            theirs = errors(self.run(model, plain, g, self.autocast), exact)
            rows.append({
                "model": kind, "in float32": errors(exact_packed, exact), "ours": ours, "plain": theirs,
                "ok": all(a <= 1.5 * b for a, b in zip(ours, theirs, strict=True)),
            })  # fmt: skip
        return rows

    def run(self, model: Any, forward: Callable[[], Tensor], g: Tensor, autocast: Any) -> list[Tensor]:
        model.zero_grad()
        with autocast():
            hidden = forward()
        hidden.backward(g.to(hidden.dtype))
        return [hidden.detach(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])]

    def syncs(self) -> list[dict[str, Any]]:
        """The host never waits inside `hidden_states`, forward and backward. That the watch can fail is shown, too."""
        if self.smoke:
            return []
        rows = []
        for kind in ("qwen2", "llama", "mistral", "gemma3_text"):
            model = self.tiny(kind).train()
            batch = pack([(ids := np.full(n, 7, np.int32), ids) for n in (129, 40, 200)], 512, self.device)
            with packed_attention(model), self.autocast():
                hidden_states(model, batch).sum().backward()
                torch.cuda.synchronize()
                torch.cuda.set_sync_debug_mode("error")
                try:
                    hidden = hidden_states(model, batch)
                    hidden.sum().backward()
                    waited, control = None, None
                    try:
                        hidden.sum().item()
                    except RuntimeError as error:
                        control = str(error)
                except RuntimeError as error:
                    waited, control = str(error), ""
                finally:
                    torch.cuda.set_sync_debug_mode("default")
            rows.append({"model": kind, "waited": waited, "ok": waited is None and control is not None})
        return rows

    def compiled(self) -> list[dict[str, Any]]:
        """Compiled layers: one graph for each size that segments are rounded up to, and the eager result."""
        if self.smoke:
            return []
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        model = self.tiny("qwen2")
        batches = [
            pack([(ids := np.full(n, 7 + i, np.int32), ids) for i, n in enumerate(lengths)], 512, self.device)
            for lengths in ((129, 40, 200), (256, 140), (130, 131, 132, 50), (180,))
        ]
        with packed_attention(model), self.autocast():
            eager = [hidden_states(model, batch).detach() for batch in batches]
            for layer in model.model.layers:
                layer.compile(fullgraph=True)
            ours = [hidden_states(model, batch) for batch in batches]
            for hidden in ours:
                hidden.sum().backward()
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        error = max(errors([a.detach()], [b])[0] for a, b in zip(ours, eager, strict=True))
        sizes = {
            (len(of.boundaries_S1), of.longest) for of in (segments_of(b.boundaries_S1, b.lengths) for b in batches)
        }
        ok = graphs == len(sizes) < len(batches) and error < 2e-2
        return [{"graphs": graphs, "sizes": len(sizes), "error against eager": error, "ok": ok}]

    def times(self) -> list[dict[str, Any]]:
        """ms of forward and backward at 28/4 heads of 128, and the kernels that ran."""
        tokens, rows = 256 if self.smoke else 16384, []
        layouts = {
            "lognormal": self.lengths(tokens), "129 each": [129] * (tokens // 129) + [tokens % 129],
            "4": [tokens // 4] * 4, "1": [tokens],
        }  # fmt: skip
        for name, lengths in layouts.items():
            qkv, g = self.qkv(tokens, 28, 4, 128), self.qkv(tokens, 28, 4, 128)[0]
            segments = self.segments(lengths)
            ends = torch.tensor([0, *lengths], device=self.device).cumsum(0)
            document_T = torch.bucketize(torch.arange(tokens, device=self.device), ends[1:], right=True)
            mask_TT = (document_T[:, None] == document_T[None]).tril()
            tight = Segments(ends.int(), max(lengths), segments.lengths)

            def packed(q: Tensor, k: Tensor, v: Tensor, s: Segments = segments) -> Tensor:
                return self.attend(q, k, v, s, None)

            def exactly(q: Tensor, k: Tensor, v: Tensor, s: Segments = tight) -> Tensor:
                return self.attend(q, k, v, s, None)

            def dense(q: Tensor, k: Tensor, v: Tensor, mask: Tensor = mask_TT) -> Tensor:
                q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
                k, v = k.repeat_interleave(7, 1), v.repeat_interleave(7, 1)
                with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
                    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)[0].transpose(0, 1)

            rows.append({
                "documents": name, "longest": max(lengths), "ms": self.ms(packed, qkv, g),
                "ms, shapes not rounded up": self.ms(exactly, qkv, g), "ms, SDPA with a dense mask": self.ms(dense, qkv, g),
                **self.kernels(packed, qkv, g),
            })  # fmt: skip
        return rows

    def ms(self, f: Callable[..., Tensor], qkv: list[Tensor], g: Tensor) -> float:
        taken = []
        for i in range(2 if self.smoke else 13):
            self.wait()
            began = time.perf_counter()
            outputs(f, qkv, g)
            self.wait()
            if i:
                taken.append(1000 * (time.perf_counter() - began))
        return statistics.median(taken)

    def kernels(self, f: Callable[..., Tensor], qkv: list[Tensor], g: Tensor) -> dict[str, Any]:
        if self.smoke:
            return {}
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            outputs(f, qkv, g)
            self.wait()
        spent = {e.key: e.self_device_time_total for e in seen.key_averages() if e.self_device_time_total}
        flash = {name: us for name, us in spent.items() if "pytorch_flash" in name}
        ways = [any(part in name for name in flash) for part in ("flash_fwd", "flash_bwd")]
        unwanted = [name for name in spent if "fmha" in name or "cudnn" in name]
        return {
            "share in pytorch_flash": sum(flash.values()) / max(1, sum(spent.values())),
            "kernels": {name[:80]: round(us / 1000, 3) for name, us in sorted(spent.items(), key=lambda x: -x[1])[:6]},
            "ok": all(ways) and not unwanted,
        }

    def large(self) -> list[dict[str, Any]]:
        with self.device:
            model: Any = tiny_model("qwen2", **SEVEN_B)
        model.to(BF16)
        seconds = []
        for _ in range(3):
            self.wait()
            began = time.perf_counter()
            verdict = examine(model, longest=4096)
            self.wait()
            seconds.append(time.perf_counter() - began)
        return [{"model": "qwen2.5-7B shape, bf16", "seconds": seconds, "reason": verdict.reason, "says": verdict.says,
                 "ok": verdict.reason is None}]  # fmt: skip

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def attention_by_document(q: Tensor, k: Tensor, v: Tensor, lengths: tuple[int, ...], window: int | None) -> Tensor:
    """As transformers' `sdpa` does for one document: causal, or with a mask where the window is crossed."""
    shared, parts = q.shape[1] // k.shape[1], []
    for a, b, c in zip(*(x.split(lengths) for x in (q, k, v)), strict=True):
        n = len(a)
        a, b, c = (x.transpose(0, 1)[None] for x in (a, b, c))
        b, c = b.repeat_interleave(shared, 1), c.repeat_interleave(shared, 1)
        mask = None
        if window is not None and n > window:
            mask = torch.ones(n, n, dtype=torch.bool, device=a.device).tril().triu(1 - window)
        # cuDNN's masked backward is wrong for some lengths (pytorch issue 196678).
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
            part = F.scaled_dot_product_attention(a, b, c, attn_mask=mask, is_causal=mask is None)
        parts.append(part[0].transpose(0, 1))
    return torch.cat(parts)


def outputs(f: Callable[..., Tensor], qkv: list[Tensor], g: Tensor) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in qkv]
    out = f(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, g)]


def errors(ours: list[Tensor], exact: list[Tensor]) -> list[float]:
    return [float((a.double() - b.double()).norm() / b.double().norm()) for a, b in zip(ours, exact, strict=True)]


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(shown(x) for x in value) + "]"
    return str(value)


if __name__ == "__main__":
    sys.exit(main())
