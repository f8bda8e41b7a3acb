"""Liger's kernels beside ours, transformers' own operations and torch.compile: errors, times, memory, whole steps.

    python benchmarks/gpu_liger.py --output benchmarks/results/h200_liger.json --commit COMMIT
    python benchmarks/gpu_liger.py --table benchmarks/results/h200_liger.json

Parts, each in a process of its own with empty compile caches: `ops` (each elementwise kernel alone), `heads` (the fused
loss), `lora` and `full` (forward and backward of eight layers of Qwen2.5-7B's shape with the head; no optimizer). `liger` is
Liger behind dynotune.model.liger, which writes into no gradient that it is given; `liger as shipped` Liger's own function.
`--table` writes what was measured into the table that is shipped (src/dynotune/speedups/measured/kernels.json).
`--tiny` runs small shapes on the CPU, in Triton's interpreter where TRITON_INTERPRET=1: it checks this script alone.

Predictions at 16,384 tokens of Qwen2.5-7B in bfloat16, at 4.3 TB/s, forward and backward: RMSNorm moves 5 x 117 MB (read,
write; read twice, write), 0.14 ms; Liger zeroes the gradient's place first, 0.16 ms. SwiGLU moves 8 x 621 MB, 1.2 ms.
Rotary moves 4 x 134 MB, 0.12 ms, and two copies more where Liger may not write into the gradient, 0.19 ms. The head: 4
(frozen) or 6 (trained) x N x 3,584 x 152,064 FLOPs; Liger's 512-row chunks read the weight (1.1 GB) 32 times a product.
The exit code is 1 if a kernel's error is above 1.5 times that of transformers' own, or a part does not finish.
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
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
TABLE = ROOT / "src/dynotune/speedups/measured/kernels.json"
PARTS = ("ops", "heads", "lora", "full")
SHAPES = {
    "7B": {"hidden": 3584, "intermediate": 18944, "heads": (28, 4, 128), "vocabulary": 152_064},
    "0.5B": {"hidden": 896, "intermediate": 4864, "heads": (14, 2, 64), "vocabulary": 49_152},
}
TINY = {"tiny": {"hidden": 32, "intermediate": 48, "heads": (2, 1, 8), "vocabulary": 301}}
SLOTS = {"norm": "rms_norm", "rotary": "rotary", "gate": "gated_activation", "head": "head"}
NAMES = {
    "norm": {"ours": "rms_norm_kernel", "liger": "liger_rms_norm", "own": "plain"},
    "rotary": {"ours": "rotary_kernel", "liger": "liger_rope", "own": "plain"},
    "gate": {"ours": "gated_activation_kernel", "liger": "liger_swiglu", "own": "plain"},
    "head": {"ours": "labelled_rows_head", "liger": "liger_cross_entropy"},
}
Way = Callable[..., Any]


class Bench:
    """Where a part runs, and what it measures by."""

    def __init__(self, tiny: bool) -> None:
        self.tiny = tiny
        self.device = torch.device("cpu" if tiny else "cuda", None if tiny else 0)
        self.low = torch.float32 if tiny else torch.bfloat16  # the interpreter cuts bfloat16 off
        self.shapes: dict[str, dict[str, Any]] = TINY if tiny else SHAPES
        self.tokens = (6,) if tiny else (16_384, 2048)

    def wait(self) -> None:
        if not self.tiny:
            torch.cuda.synchronize()

    def seconds(self, call: Callable[[], Any]) -> float:
        self.wait()
        began = time.perf_counter()
        call()
        self.wait()
        return time.perf_counter() - began

    def measure(
        self, call: Callable[[], Any], before: Callable[[], Any] = lambda: None, calls: int = 15
    ) -> dict[str, Any]:
        """Milliseconds between events around a call (median, least, most), of its kernels alone, and of the host.

        before: puts inputs back that the call overwrites. It is not counted.
        """
        for _ in range(2):
            before()
            call()
        if self.tiny:
            return {"ms": 1e3 * self.seconds(call)}
        times, host = [], []
        for _ in range(calls):
            before()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            began = time.perf_counter()
            call()
            host.append(1e3 * (time.perf_counter() - began))
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end))
        before()
        self.wait()
        with profile(activities=[ProfilerActivity.CUDA]) as prof:
            call()
            self.wait()
        kernels = [e for e in prof.events() if e.device_type == DeviceType.CUDA]
        return {
            "ms": statistics.median(times), "min": min(times), "max": max(times), "host_ms": statistics.median(host),
            "kernels": len(kernels), "kernels_ms": sum(e.time_range.elapsed_us() for e in kernels) / 1e3,
        }  # fmt: skip

    def peak_mib(self, call: Callable[[], Any]) -> float | None:
        """What a call allocates beyond its inputs."""
        if self.tiny:
            return None
        self.wait()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        kept = call()
        self.wait()
        del kept
        return (torch.cuda.max_memory_allocated() - before) / 2**20


def leaves_of(inputs: list[Tensor], wants: int, dtype: torch.dtype) -> list[Tensor]:
    return [x.to(dtype, copy=True).requires_grad_(i < wants) for i, x in enumerate(inputs)]


def run(function: Way, inputs: list[Tensor], wants: int, dtype: torch.dtype) -> list[Tensor]:
    """Outputs and gradients on copies; the cotangent is the same in every precision."""
    leaves = leaves_of(inputs, wants, dtype)
    out = function(*leaves)
    outputs = out if isinstance(out, tuple) else (out,)
    random = torch.Generator(inputs[0].device).manual_seed(7)
    drawn = [torch.randn(y.shape, generator=random, device=y.device).bfloat16() for y in outputs]
    kept = [y.detach().clone() for y in outputs]
    given = [x.to(y.dtype) for x, y in zip(drawn, outputs, strict=True)]
    return kept + list(torch.autograd.grad(outputs, leaves[:wants], given))


def error(found: list[Tensor], right: list[Tensor]) -> float:
    """The largest relative L2 error of outputs and gradients."""
    return max(float((a.double() - b.double()).norm() / b.double().norm()) for a, b in zip(found, right, strict=True))


def ways_of(op: str) -> dict[str, Way]:
    """Functions of the same inputs, by name; what cannot be imported is left to fail where it is called."""
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction
    from liger_kernel.ops.rope import LigerRopeFunction
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction
    from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm, apply_rotary_pos_emb

    from dynotune.model.elementwise.usable import Kernels
    from dynotune.model.elementwise.usable import kernels as of_ours
    from dynotune.model.liger.usable import kernels as of_liger

    ours, liger = of_ours(), of_liger()
    assert isinstance(ours, Kernels), ours
    assert isinstance(liger, Kernels), liger

    def own_norm(x: Tensor, w: Tensor) -> Tensor:
        module = Qwen2RMSNorm(w.shape[0], eps=1e-6)
        return torch.func.functional_call(module, {"weight": w}, (x,))

    def heads(function: Way) -> Way:
        return lambda q, k, cos, sin: function(q.transpose(1, 2), k.transpose(1, 2), cos, sin)

    if op == "norm":
        return {
            "own": own_norm,
            "ours": lambda x, w: ours.rms_norm.apply(x, w, 1e-6, 0.0, True),
            "liger": lambda x, w: liger.rms_norm.apply(x, w, 1e-6, 0.0, True),
            "liger as shipped": lambda x, w: LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", True),
        }
    if op == "gate":
        return {
            "own": lambda g, u: F.silu(g) * u,
            "ours": lambda g, u: ours.gated.apply(g, u, False),
            "liger": lambda g, u: liger.gated.apply(g, u, False),
            "liger as shipped": lambda g, u: LigerSiLUMulFunction.apply(g, u),
        }
    return {
        "own": heads(apply_rotary_pos_emb), "ours": heads(ours.rotary.apply), "liger": heads(liger.rotary.apply),
        "liger as shipped": heads(lambda q, k, cos, sin: LigerRopeFunction.apply(q * 1, k * 1, cos, sin)),
    }  # fmt: skip


def cases(bench: Bench) -> list[tuple[str, str, int, bool, list[Tensor], int]]:
    """Operation, shape, tokens, whether weights are trained, float32 inputs, how many of them want a gradient."""
    made = []
    for tokens in bench.tokens:
        for name, shape in bench.shapes.items():
            draw = lambda *size: torch.randn(*size, device=bench.device)  # noqa: E731
            h, k, d = shape["heads"]
            for trained in (False, True):
                weight = 0.6 + 0.2 * draw(shape["hidden"])
                made.append(("norm", name, tokens, trained, [draw(tokens, shape["hidden"]), weight], 1 + trained))
            wide = [2 * draw(tokens, shape["intermediate"]) for _ in range(2)]
            made.append(("gate", name, tokens, False, wide, 2))
            angles = 6 * draw(1, tokens, d // 2).repeat(1, 1, 2)
            query, key = draw(1, tokens, h, d), draw(1, tokens, k, d)
            made.append(("rotary", name, tokens, False, [query, key, angles.cos(), angles.sin()], 2))
    return made


def ops(bench: Bench) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for op, shape, tokens, trained, inputs, wants in cases(bench):
        inputs = [x.to(bench.low).float() for x in inputs]  # what both precisions can hold
        ways = ways_of(op)
        right = run(ways["own"], inputs, wants, torch.float32)
        allowed = max(1e-5, 1.5 * error(run(ways["own"], inputs, wants, bench.low), right))
        if tokens == bench.tokens[0] and not bench.tiny:
            ways["compiled"] = torch.compile(ways["own"], dynamic=False)
        for way, function in ways.items():
            row: dict[str, Any] = {"op": op, "shape": shape, "tokens": tokens, "trained": trained, "way": way}
            try:
                row |= one(bench, function, inputs, wants, right, allowed)
            except Exception as failure:  # noqa: BLE001  (the other ways go on)
                row["failed"] = f"{type(failure).__name__}: {str(failure)[:300]}"
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
        del right
    return rows


def one(
    bench: Bench, function: Way, inputs: list[Tensor], wants: int, right: list[Tensor], allowed: float
) -> dict[str, Any]:
    """Error and figures of one way: forward and backward as one call."""
    first = bench.seconds(lambda: run(function, inputs, wants, bench.low))
    off = error(run(function, inputs, wants, bench.low), right)
    wrong = error(run(function, [1.1 * inputs[0], *inputs[1:]], wants, bench.low), right)
    leaves = leaves_of(inputs, wants, bench.low)
    as_given = [x.detach().clone() for x in leaves]
    out = function(*leaves)
    outputs = out if isinstance(out, tuple) else (out,)
    gradients = [torch.randn_like(y) for y in outputs]
    given = [x.clone() for x in gradients]
    del out, outputs

    def before() -> None:
        with torch.no_grad():
            for x, was in zip([*leaves, *gradients], [*as_given, *given], strict=True):
                x.copy_(was)

    def call() -> Any:
        out = function(*leaves)
        return torch.autograd.grad(out, leaves[:wants], gradients)

    found = {"first_s": first, "error": off, "allowed": allowed, "control": wrong, "ok": off <= allowed < wrong}
    return found | bench.measure(call, before) | {"peak_MiB": bench.peak_mib(call)}


def heads(bench: Bench) -> list[dict[str, Any]]:
    from benchmarks.head_problem import Problem, float32_reference
    from dynotune.config.keys.objective import SFTObjectiveConfig
    from dynotune.model.head.logit_map import LogitMap
    from dynotune.model.liger.head import LigerHead
    from dynotune.objectives.sft import SFTObjective

    rows: list[dict[str, Any]] = []
    objective, logits = SFTObjective(SFTObjectiveConfig()), LogitMap()

    def of(way: str, problem: Problem) -> tuple[Tensor, ...]:
        if way == "ours":
            return problem.ours(logits, objective)
        n, wanted = len(problem.batch.targets_N), problem.wanted
        if way == "liger":
            head = LigerHead(problem.layer, logits, problem.layer.out_features)
            loss = head(problem.hidden_TD, problem.batch, objective)[0] / n
        else:  # all tokens, those without a label by the index that Liger leaves out
            from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

            labels_T = torch.full((len(problem.hidden_TD),), -100, device=problem.hidden_TD.device)
            labels_T[problem.batch.predictors_N] = problem.batch.targets_N
            loss = LigerFusedLinearCrossEntropyFunction.apply(problem.hidden_TD, problem.layer.weight, labels_T)[0]
        return loss.detach(), *torch.autograd.grad(loss, wanted)

    for name, shape in bench.shapes.items():
        for trained in (False, True):
            size = {
                "width": shape["hidden"],
                "vocabulary": shape["vocabulary"],
                "trained": trained,
                "precision": bench.low,
            }
            small = Problem(bench.device, min(2048, bench.tokens[0] * 4), share=0.5, **size)
            right = list(float32_reference(small, logits, objective))
            allowed = max(1e-5, 1.5 * error(list(small.plain(logits, objective)), right))
            for share in (1.0, 0.3):
                problem = Problem(bench.device, max(bench.tokens[0], 24), share=share, **size)
                for way in ("ours", "liger", "liger as shipped"):
                    row: dict[str, Any] = {"op": "head", "shape": name, "tokens": bench.tokens[0]}
                    row |= {"trained": trained, "share": share, "way": way}
                    try:
                        call = lambda way=way, problem=problem: of(way, problem)  # noqa: E731
                        row["first_s"] = bench.seconds(call)
                        row["error"] = error(list(of(way, small)), right)
                        row |= {"allowed": allowed, "ok": row["error"] <= allowed}
                        row |= bench.measure(call, calls=5) | {"peak_MiB": bench.peak_mib(call)}
                    except Exception as failure:  # noqa: BLE001  (the other ways go on)
                        row["failed"] = f"{type(failure).__name__}: {str(failure)[:300]}"
                    rows.append(row)
                    print(json.dumps(row), file=sys.stderr, flush=True)
            del small, right, problem
    return rows


def table(source: Path) -> None:
    """Put the rows of a result into the shipped table, in the place of those of the same GPU.

    By the time of the kernels alone: in a step the host runs ahead of the device, where a call by itself waits for it.
    """
    result = json.loads(source.read_text())
    groups: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in (*result["ops"], *result["heads"]):
        name = NAMES[row["op"]].get(row["way"])
        if name is None or "kernels_ms" not in row or row.get("share", 1.0) != 1.0:
            continue
        for trained in (row["trained"],) if row["op"] in ("norm", "head") else (False, True):
            groups.setdefault((row["op"], row["shape"], row["tokens"], trained), {})[name] = round(row["kernels_ms"], 4)
    body = json.loads(TABLE.read_text())
    gpu = result["hardware"]
    body["measurements"] = [one for one in body["measurements"] if one["gpu"] != f"{gpu}*"] + [
        {
            "gpu": f"{gpu}*", "capability": result["capability"], "slot": SLOTS[op], "hidden": SHAPES[shape]["hidden"],
            "tokens": tokens, "trained": trained, "ms": ms, "versions": result["versions"],
            "date": result["date"], "source": f"benchmarks/results/{source.name}",
        }
        for (op, shape, tokens, trained), ms in groups.items()
    ]  # fmt: skip
    TABLE.write_text(json.dumps(body, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="the file for the figures, as JSON")
    parser.add_argument("--table", type=Path, help="a file of figures, to be put into the shipped table")
    parser.add_argument("--commit", default="")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--here", action="store_true", help="the one part in this process")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    if args.table:
        table(args.table)
        return 0
    if args.here:
        args.output.write_text(json.dumps(part(args.parts[0], Bench(args.tiny)), indent=1))
        return 0
    result: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]), "commit": args.commit, "date": datetime.now(UTC).date().isoformat(),
        "hardware": "cpu" if args.tiny else torch.cuda.get_device_name(),
        "capability": "" if args.tiny else ".".join(map(str, torch.cuda.get_device_capability())),
        "versions": {p: metadata.version(p) for p in ("torch", "transformers", "triton", "liger-kernel")}
        | {"python": platform.python_version(), "cuda": str(torch.version.cuda)},
    }  # fmt: skip
    args.output.parent.mkdir(parents=True, exist_ok=True)
    for name in args.parts:
        with tempfile.TemporaryDirectory() as caches:
            place = Path(caches) / "part.json"
            command = [sys.executable, __file__, "--output", str(place), "--here", "--parts", name]
            empty = {"TRITON_CACHE_DIR": f"{caches}/triton", "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor"}
            began = time.perf_counter()
            done = subprocess.run(
                [*command, *["--tiny"] * args.tiny], stderr=subprocess.PIPE, text=True, env=os.environ | empty
            )
            if done.returncode:
                result[name] = [{"op": name, "way": "all", "failed": done.stderr[-4000:]}]
            else:
                result[name] = json.loads(place.read_text())
            result[f"{name}_seconds"] = round(time.perf_counter() - began, 1)
        args.output.write_text(json.dumps(result, indent=1) + "\n")
        print(f"{name}: {'FAILED' if done.returncode else 'done'} in {result[f'{name}_seconds']} s", flush=True)
    return show([row for name in args.parts for row in result[name]])


def part(name: str, bench: Bench) -> list[dict[str, Any]]:
    if os.environ.get("TRITON_INTERPRET") == "1":
        from tests.model.liger import interpreter

        interpreter.complete()
    if name in ("lora", "full"):
        from benchmarks.liger_steps import steps

        return steps(bench, full=name == "full")
    return ops(bench) if name == "ops" else heads(bench)


def show(rows: list[dict[str, Any]]) -> int:
    print(f"{'':34}{'way':>18}{'ms':>9}{'kernels':>9}{'host ms':>9}{'first s':>9}{'MiB':>9}  error / allowed")
    for row in rows:
        share = f", {row['share']:.0%} labelled" if "share" in row else ""
        case = f"{row['op']} {row.get('shape', '')} {row.get('tokens', '')}{' trained' if row.get('trained') else ''}{share}"
        if "failed" in row:
            print(f"{case:34}{row['way']:>18}  FAILED: {row['failed'].strip().splitlines()[-1][:120]}")
            continue
        figures = [row.get(key) for key in ("ms", "kernels_ms", "host_ms", "first_s", "peak_MiB")]
        cells = "".join(f"{figure:9.2f}" if isinstance(figure, float) else f"{'':9}" for figure in figures)
        compared = f"  {row['error']:.1e} / {row['allowed']:.1e}" if "error" in row else f"  {row.get('note', '')}"
        print(f"{case:34}{row['way']:>18}{cells}{compared}{'' if row.get('ok', True) else '  NOT OK'}")
    wrong = [row for row in rows if "failed" in row or not row.get("ok", True)]
    judged = [row for row in wrong if row["way"] not in ("liger as shipped", "compiled")]
    print("gpu_liger: every check holds" if not judged else f"gpu_liger: {len(judged)} FAILED")
    return 1 if judged else 0


if __name__ == "__main__":
    sys.exit(main())
