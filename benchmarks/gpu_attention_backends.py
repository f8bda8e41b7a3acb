"""Every attention backend that loads, alone: right or not, how fast, by which kernels, and whether it compiles.

    python benchmarks/gpu_attention_backends.py --output OUT.json

Each backend runs in a process of its own, since a kernel that writes out of bounds ends its process. `--tiny` runs on the
CPU with the reference in the place of a kernel: it checks this script and nothing else. The exit code is 1 if a backend that
loads is wrong. DYNOTUNE_FLASH_ATTENTION_3 may name a module or shared library that brings FlashAttention-3.

Prediction, 16,384 tokens, 28/4 heads of 128, forward and backward (3.5 x 2 H D sum n (n + 1) FLOPs; 0.9 GB of queries,
outputs and their gradients, 0.2 ms at 4.3 TB/s): 4 x 4096 1.68 TFLOP, so 2.9 ms at FlashAttention-3's 577 TFLOP/s and 5.9 ms
at FlashAttention-2's 284; 1 x 16384 6.7 TFLOP, 11.2 ms and 21 ms; lognormal lengths about 0.3 TFLOP, 1.3 ms and 2.2 ms.
16 x 129 is 0.007 TFLOP and 0.1 GB: launches and the host decide, about 0.1 ms.
"""

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from dynotune.model.attention.backends import KERNELS, Asked, reference, why_not
from dynotune.model.attention.gradient_check import check
from dynotune.model.attention.segments import Segments, segments_of

SECONDS = 145
"""For all backends together."""

CHECKED = [(28, 4, 128, None, None), (14, 2, 64, None, None), (28, 4, 128, 4096, None), (8, 4, 256, None, None),
           (16, 8, 128, None, 50.0)]  # fmt: skip
"""Query heads, key heads, head dimension, window, soft-cap."""

TIMED = [(28, 4, 128), (14, 2, 64)]
PACKAGES = ("torch", "triton", "nvidia-cudnn-frontend", "flash-attn-4", "nvidia-cutlass-dsl", "quack-kernels", "xformers",
            "flash-attn-3", "nvidia-cuda-runtime-cu12")  # fmt: skip
FAILURES = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, OSError, RuntimeError, TypeError,
            ValueError, torch._dynamo.exc.TorchDynamoException)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="where the JSON goes")
    parser.add_argument("--commit", default="")
    parser.add_argument("--only", default=",".join([*KERNELS, "reference"]), help="names of backends, with commas")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        result = Backend(args.child, args.tiny, args.until).run(args.output)
        args.output.write_text(json.dumps(result, indent=1))
        return 0
    began, rows = time.time(), {}
    names = args.only.split(",")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(names):
        left = SECONDS - (time.time() - began)
        rows[name] = child(name, args, time.time() + left / (len(names) - i) * 1.5, left)
        result = {
            "command": " ".join(["python", *sys.argv]), "commit": args.commit, "seconds": round(time.time() - began, 1),
            "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            "versions": {p: version(p) for p in PACKAGES if version(p)} | {"python": platform.python_version()},
            "backends": rows,
        }  # fmt: skip
        args.output.write_text(json.dumps(result, indent=1))
        print(
            f"{name}: {rows[name]['seconds']:.0f} s {rows[name].get('missing') or rows[name].get('failed') or ''}",
            flush=True,
        )
    show(rows)
    wrong = [f"{name}: {one['heads']}: {one['reason']}" for name, row in rows.items() for one in row.get("checks", [])
             if one.get("reason")]  # fmt: skip
    wrong += [f"{name}: {row['failed']}" for name, row in rows.items() if row.get("failed")]
    print(f"{len(wrong)} wrong", *wrong, sep="\n")
    return 1 if wrong else 0


def child(name: str, args: argparse.Namespace, until: float, left: float) -> dict[str, Any]:
    """One backend in a process of its own. `until`: when it should leave out what is left to do."""
    part, began = args.output.with_suffix(f".{name}"), time.time()
    part.unlink(missing_ok=True)
    command = [sys.executable, __file__, "--child", name, "--output", str(part), "--until", str(until)]
    environment = dict(os.environ)
    dsl = importlib.util.find_spec("nvidia_cutlass_dsl")
    if dsl is not None and dsl.submodule_search_locations:  # its .pth file is not read in every kind of installation
        there = str(Path(dsl.submodule_search_locations[0]) / "dsl_packages")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), there]))
    failed = None
    if left < 5:
        return {"seconds": 0.0, "missing": "not tried: no time left"}
    try:
        done = subprocess.run(
            [*command, "--tiny"] if args.tiny else command,
            capture_output=True,
            text=True,
            timeout=left,
            env=environment,
        )
        if done.returncode:
            failed = f"exit code {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1][:300]}"
    except subprocess.TimeoutExpired:
        failed = "no answer in time"
    result: dict[str, Any] = json.loads(part.read_text()) if part.is_file() else {}
    part.unlink(missing_ok=True)
    return result | {"seconds": time.time() - began} | ({"failed": failed} if failed else {})


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


class OneByOne:
    """The reference, in the place of a kernel."""

    WORDS = "reference"

    def limits(self, asked: Asked) -> None: ...

    def missing(self) -> None: ...

    def prepare(self, segments: Segments, decoder: nn.Module) -> tuple[int, ...]:
        return segments.lengths

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, ends: Tensor, longest: int, scaling: float, window: int | None,
        softcap: float | None, plan: tuple[int, ...],
    ) -> Tensor:  # fmt: skip
        return reference.attend(q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), plan, scaling, window, softcap)


class Backend:
    def __init__(self, name: str, tiny: bool, until: float) -> None:
        self.name, self.tiny, self.until = name, tiny, until
        self.kernel: Any = OneByOne() if name == "reference" else KERNELS[name]
        self.device = torch.device("cpu") if tiny else torch.device("cuda", 0)
        self.result: dict[str, Any] = {"checks": [], "times": [], "compiled": None}

    def run(self, output: Path) -> dict[str, Any]:
        missing = why_not(self.kernel, self.asked(28, 4, 128, None, None))
        if missing:
            return {"missing": missing}
        for part in (self.checks, self.times, self.compiled):
            part()
            output.write_text(json.dumps(self.result))  # what is known, should the process end
        return self.result

    def asked(self, heads: int, key_heads: int, dim: int, window: int | None, softcap: float | None) -> Asked:
        return Asked(self.device, torch.bfloat16, heads, key_heads, dim, dim, window, softcap)

    def checks(self) -> None:
        for heads, key_heads, dim, window, softcap in [(4, 2, 16, None, None)] if self.tiny else CHECKED:
            asked = self.asked(heads, key_heads, dim, window, softcap)
            row: dict[str, Any] = {"heads": f"{heads}/{key_heads}x{dim}, window {window}, soft-cap {softcap}"}
            self.result["checks"].append(row)
            limit = self.kernel.limits(asked)
            if limit is not None or time.time() > self.until:
                row["left out"] = limit or "no time left"
                continue
            began = time.time()
            row |= check(self.kernel, asked, dim**-0.5).to_json() | {"seconds": round(time.time() - began, 2)}

    def times(self) -> None:
        tokens = 256 if self.tiny else 16384
        layouts = {"4": [tokens // 4] * 4, "lognormal": lognormal(tokens), "1": [tokens], "16 x 129": [129] * 16}
        for heads, key_heads, dim in [(4, 2, 16)] if self.tiny else TIMED:
            for name, lengths in layouts.items():
                row: dict[str, Any] = {
                    "documents": name,
                    "heads": f"{heads}/{key_heads}x{dim}",
                    "segments": len(lengths),
                }
                self.result["times"].append(row)
                if time.time() > self.until:
                    row["left out"] = "no time left"
                    continue
                try:
                    row |= self.time(heads, key_heads, dim, lengths)
                except FAILURES as error:
                    row["failed"] = f"{type(error).__name__}: {str(error)[:300]}"

    def time(self, heads: int, key_heads: int, dim: int, lengths: list[int]) -> dict[str, Any]:
        segments, leaves, gradient = self.problem(heads, key_heads, dim, lengths)
        began = time.perf_counter()
        plan = self.kernel.prepare(segments, nn.Module())
        attend = self.attend(segments, dim, plan)
        torch.autograd.grad(attend(*leaves), leaves, gradient)
        self.wait()
        first = time.perf_counter() - began
        forward, backward, host = [], [], []
        for i in range(2 if self.tiny else 24):
            marks = [self.mark()]
            called = time.perf_counter()
            out = attend(*leaves)
            marks.append(self.mark())
            torch.autograd.grad(out, leaves, gradient)
            host.append(time.perf_counter() - called)
            marks.append(self.mark())
            self.wait()
            if i >= 4 or self.tiny:
                forward.append(between(marks[0], marks[1]))
                backward.append(between(marks[1], marks[2]))
        self.wait()
        began = time.perf_counter()
        self.kernel.prepare(segments, nn.Module())
        self.wait()
        prepared = time.perf_counter() - began
        flops = 2.0 * heads * dim * sum(n * (n + 1) for n in lengths)
        ms = statistics.median(forward), statistics.median(backward)
        return {
            "forward_ms": round(ms[0], 4), "backward_ms": round(ms[1], 4), "spread_ms": round(np.ptp(backward).item(), 4),
            "tflops": round(3.5 * flops / sum(ms) / 1e9, 1), "forward_tflops": round(flops / ms[0] / 1e9, 1),
            "backward_tflops": round(2.5 * flops / ms[1] / 1e9, 1), "host_us": round(1e6 * statistics.median(host)),
            "prepare_ms": round(1e3 * prepared, 3), "first_s": round(first, 2),
            "kernels": self.kernels(lambda: torch.autograd.grad(attend(*leaves), leaves, gradient)),
        }  # fmt: skip

    def compiled(self) -> None:
        """One graph around it: gradients as without the compiler."""
        segments, leaves, gradient = self.problem(4, 2, 64, [100, 1, 27] if self.tiny else [700, 1, 323])
        plan = self.kernel.prepare(segments, nn.Module())
        attend = self.attend(segments, 64, plan)

        def around(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return 2 * attend(q * 1.5, k, v)

        try:
            torch._dynamo.reset()
            traced = torch.compile(around, fullgraph=True, **({"backend": "aot_eager"} if self.tiny else {}))
            outs = [f(*leaves) for f in (around, traced)]
            eager, ours = [[out.detach(), *torch.autograd.grad(out, leaves, gradient)] for out in outs]
            errors = [
                float((a.float() - b.float()).norm() / b.float().norm()) for a, b in zip(ours, eager, strict=True)
            ]
            graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
            self.result["compiled"] = {"errors": errors, "graphs": graphs, "right": max(errors) < 2e-2}
        except FAILURES as error:
            self.result["compiled"] = {"failed": f"{type(error).__name__}: {str(error)[:300]}"}

    def attend(self, segments: Segments, dim: int, plan: Any) -> Callable[..., Tensor]:
        ends, longest = segments.boundaries_S1, segments.longest
        return lambda q, k, v: self.kernel.attend(q, k, v, ends, longest, dim**-0.5, None, None, plan)

    def problem(
        self, heads: int, key_heads: int, dim: int, lengths: list[int]
    ) -> tuple[Segments, list[Tensor], Tensor]:
        """Fresh random queries, keys and values [T, heads, D], and a gradient of the output."""
        drawn = [
            torch.randn(sum(lengths), n, dim, device=self.device).bfloat16()
            for n in (heads, key_heads, key_heads, heads)
        ]
        ends = torch.tensor([0, *lengths]).cumsum(0).int().to(self.device)
        return segments_of(ends, lengths), [x.requires_grad_() for x in drawn[:3]], drawn[3]

    def kernels(self, f: Callable[[], Any]) -> dict[str, float]:
        if self.tiny:
            return {}
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            f()
            self.wait()
        spent = {e.key: e.self_device_time_total for e in seen.key_averages() if e.self_device_time_total}
        return {name[:160]: round(us / 1000, 4) for name, us in sorted(spent.items(), key=lambda x: -x[1])[:8]}

    def mark(self) -> Any:
        if self.tiny:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self) -> None:
        if not self.tiny:
            torch.cuda.synchronize()


def between(one: Any, other: Any) -> float:
    """Milliseconds."""
    return 1e3 * (other - one) if isinstance(one, float) else one.elapsed_time(other)


def lognormal(tokens: int) -> list[int]:
    """Median 200, at most 4,096, that fill `tokens`."""
    generator, lengths = np.random.default_rng(1234), []
    while sum(lengths) < tokens:
        lengths.append(min(int(np.clip(generator.lognormal(np.log(200), 0.9), 16, 4096)), tokens - sum(lengths)))
    return lengths


def show(rows: dict[str, Any]) -> None:
    for name, row in rows.items():
        for one in row.get("checks", []):
            verdict = one.get("left out") or one["reason"] or "right"
            used = max((one["errors"][k] / one["allowed"][k] for k in one.get("errors", {})), default=0.0)
            print(f"{name:10} {one['heads']:44} {used:5.2f} of the error allowed: {verdict}")
        if row.get("compiled"):
            print(f"{name:10} compiled: {row['compiled']}")
    columns = ("fwd ms", "bwd ms", "TFLOP/s", "host us", "prep ms", "first s")
    print(f"{'documents':10} {'heads':9} {'backend':10}", *(f"{name:>8}" for name in columns))
    timed = [(one["documents"], one["heads"], name, one) for name, row in rows.items() for one in row.get("times", [])]
    for documents, heads, name, one in sorted(timed, key=lambda t: (t[0], t[1], -t[3].get("tflops", 0))):
        if "tflops" in one:
            figures = (
                f"{one[key]:8g}" for key in ("forward_ms", "backward_ms", "tflops", "host_us", "prepare_ms", "first_s")
            )
            print(f"{documents:10} {heads:9} {name:10}", *figures)
        else:
            print(f"{documents:10} {heads:9} {name:10}", one.get("left out") or one.get("failed"))
    for name, row in rows.items():
        kernels = next((one["kernels"] for one in row.get("times", []) if one.get("kernels")), {})
        for kernel, ms in list(kernels.items())[:5]:
            print(f"{name:10} {ms:8.3f} ms {kernel[:130]}")


if __name__ == "__main__":
    sys.exit(main())
