"""The labelled-rows head alone on a GPU: errors against float32, host waits, time and memory, and the sizes that are best.

    python benchmarks/gpu_head.py --out results/ --commit COMMIT

Random bf16 inputs in which about half of the probability is on the target, as in a model in fine-tuning. Times are medians
of CUDA events over forward and backward; a step touches more memory than the L2 cache holds. Peak memory is what a call
allocates beyond its inputs. `--cpu` runs tiny shapes without timing, to test the script itself.
"""

import argparse
import importlib.metadata as metadata
import itertools
import json
import platform
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from head_problem import Problem, float32_reference
from torch import Tensor

from dynotune.config.keys.objective import SFTObjectiveConfig
from dynotune.model.head import head, linear
from dynotune.model.head.chunks import CHUNK_BYTES, chunks
from dynotune.model.head.kernel import disagreement, row_function
from dynotune.model.head.logit_map import LogitMap
from dynotune.model.head.rows import rows_in_torch
from dynotune.model.head.rows import statistics as row_statistics
from dynotune.objectives.row_loss import RowLoss
from dynotune.objectives.sft import SFTObjective

VARIANTS: dict[str, tuple[dict[str, Any], LogitMap]] = {
    "nll": ({}, LogitMap()),
    "soft-capped": ({}, LogitMap(cap=30.0)),
    "scaled": ({}, LogitMap(scale=0.125)),
    "smoothing": ({"label_smoothing_factor": 0.1}, LogitMap()),
    "dft": ({"loss_type": "dft"}, LogitMap()),
}


FLOOR = 1e-5
"""Relative error below which nothing is compared: float32's rounding over sums as long as the vocabulary."""


def error(got: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> list[float]:
    """Relative norm of the difference: of the loss, and of each gradient."""
    return [float((a.double() - b.double()).norm() / b.double().norm()) for a, b in zip(got, right, strict=True)]


def check_errors(device: torch.device, small: bool) -> list[dict[str, Any]]:
    """P2: at most 1.5 times the plain path's error, in the working precision."""
    rows = []
    shapes = [(96, 32, 641)] if small else [(3000, 1024, 50_257), (2500, 1024, 152_064)]
    for (tokens, width, vocabulary), precision in itertools.product(
        shapes, (torch.bfloat16, torch.float16, torch.float32)
    ):
        for (name, (settings, logits)), trained in itertools.product(VARIANTS.items(), (False, True)):
            problem = Problem(
                device, tokens, width, vocabulary, share=0.8, trained=trained, bias=name == "nll", precision=precision
            )
            objective = SFTObjective(SFTObjectiveConfig.model_validate(settings))
            with small_chunks(700, vocabulary, precision.itemsize):  # several, the last one short
                ours = problem.ours(logits, objective)
            right = float32_reference(problem, logits, objective)
            plain = error(problem.plain(logits, objective), right)
            mine = error(ours, right)
            # Of float32, where the plain path is the reference itself; of the loss, whose error may vanish by chance.
            ok = all(m <= max(1.5 * p, FLOOR) for m, p in zip(mine, plain, strict=True))
            rows.append(
                {"shape": [tokens, width, vocabulary], "precision": str(precision), "loss": name, "trained": trained,
                 "error": mine, "plain_error": plain, "ok": ok}
            )  # fmt: skip
    return rows


@contextmanager
def small_chunks(rows: int, vocabulary: int, itemsize: int) -> Iterator[None]:
    """Chunks of at most `rows` rows."""
    with replaced(linear, "chunks", partial(chunks, chunk_bytes=rows * vocabulary * itemsize)):
        yield


@contextmanager
def replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    kept = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, kept)


def check_waits(device: torch.device) -> dict[str, Any]:
    """No operation of a call makes the host wait; negative control: one that does is noticed."""
    waits: dict[str, Any] = {}
    for trained in (False, True):
        problem = Problem(device, 512, 256, 8000, trained=trained, share=0.5)
        problem.ours(LogitMap(), SFTObjective(SFTObjectiveConfig()))  # compiles
        torch.cuda.set_sync_debug_mode("error")
        try:
            problem.ours(LogitMap(), SFTObjective(SFTObjectiveConfig()))
            waits[f"trained={trained}"] = "none"
        except RuntimeError as raised:
            waits[f"trained={trained}"] = str(raised)
        try:
            problem.hidden_TD.sum().item()
            waits["control"] = "missed"
        except RuntimeError:
            waits["control"] = "seen"
        torch.cuda.set_sync_debug_mode("default")
    waits["ok"] = waits["control"] == "seen" and all(waits[f"trained={t}"] == "none" for t in (False, True))
    return waits


def measure(call: Callable[[], Any], repeats: int = 7) -> dict[str, float]:
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before, times = torch.cuda.memory_allocated(), []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    peak = torch.cuda.max_memory_allocated() - before
    return {"ms": statistics.median(times), "min": min(times), "max": max(times), "peak_MiB": peak / 2**20}


CASES = {
    "frozen, all": {"share": 1.0, "trained": False},
    "frozen, 30 %": {"share": 0.3, "trained": False},
    "trained, all": {"share": 1.0, "trained": True},
    "fp32 masters, all": {"share": 1.0, "trained": True, "weight_precision": torch.float32},
}
SIZES = [(2048, 8192, 16, 8), (4096, 8192, 16, 8), (8192, 8192, 16, 8), (4096, 4096, 8, 8), (4096, 8192, 16, 1)]
"""Rows a chunk; elements a block, warps and elements a lane of the kernel."""

KERNELS = [
    (2048, 4, 8),
    (4096, 8, 8),
    (4096, 8, 4),
    (8192, 8, 8),
    (8192, 16, 8),
    (8192, 16, 1),
    (16384, 16, 8),
    (16384, 32, 8),
]


def check_far_rows(device: torch.device) -> dict[str, Any]:
    """Rows beyond 2 ** 31 elements are the rows that are meant."""
    n, vocabulary = 14_400, 152_064
    z_NV = torch.zeros(n, vocabulary, device=device, dtype=torch.bfloat16)
    z_NV[-1].normal_()
    targets_N = torch.arange(n, device=device)
    right_NV, right_3N = z_NV[-1:].clone(), row_statistics(1, z_NV)
    rows_in_torch(right_NV, targets_N[-1:], RowLoss(), LogitMap(), True, right_3N)
    out_3N = row_statistics(n, z_NV)
    row_function(device)[0](z_NV, targets_N, RowLoss(), LogitMap(), True, out_3N)
    off = float((out_3N[:, -1] - right_3N[:, 0]).abs().amax())
    off_gradient = float((z_NV[-1] - right_NV[0]).abs().amax())
    return {
        "elements": z_NV.numel(),
        "off": off,
        "off gradient": off_gradient,
        "ok": off < 1e-4 and off_gradient < 1e-2,
    }


def check_times(device: torch.device) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    objective, vocabulary = SFTObjective(SFTObjectiveConfig()), 152_064

    def add(case: str, method: str, call: Callable[[], Any]) -> None:
        torch.cuda.empty_cache()
        try:
            rows.append({"case": case, "method": method, **measure(call)})
        except torch.OutOfMemoryError as raised:
            rows.append({"case": case, "method": method, "error": str(raised).splitlines()[0]})
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)

    for case, settings in CASES.items():
        time_case(partial(add, case), Problem(device, 16_384, 3584, vocabulary, **settings), objective)
    return rows + check_kernel_alone(device, vocabulary)


def time_case(add: Callable[[str, Callable[[], Any]], None], problem: Problem, objective: SFTObjective) -> None:
    from dynotune.model.head import triton_rows

    masters, trained = problem.layer.weight.dtype is torch.float32, problem.layer.weight.requires_grad
    ours = partial(problem.ours, LogitMap(), objective)
    with torch.autocast("cuda", torch.bfloat16, enabled=masters):
        add("default", ours)
        if masters:
            return
        for chunk, block, warps, group in SIZES:
            kernel = partial(triton_rows.rows_in_triton, block=block, warps=warps, group=group)
            with (
                small_chunks(chunk, problem.layer.out_features, 2),
                replaced(head, "row_function", lambda _, k=kernel: (k, None)),
            ):
                add(f"{chunk} rows, block {block}, {warps} warps, lane {group}", ours)
        add("full float32 logits", partial(full_logits, problem))
        time_liger(add, problem)
        if trained:
            return
        with replaced(head, "row_function", lambda _: (rows_in_torch, None)):
            add("torch rows", ours)
        with torch.no_grad():
            add("no gradient", lambda: problem.head(LogitMap())(problem.hidden_TD, problem.batch, objective))


def full_logits(problem: Problem) -> Any:
    logits_NV = F.linear(problem.hidden_TD[problem.batch.predictors_N], problem.layer.weight).float()
    return torch.autograd.grad(F.cross_entropy(logits_NV, problem.batch.targets_N), problem.wanted)


def time_liger(add: Callable[[str, Callable[[], Any]], None], problem: Problem) -> None:
    """Liger's fused linear cross entropy, where it is installed, on the gathered rows."""
    try:
        from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss
    except ImportError:
        return
    loss = LigerFusedLinearCrossEntropyLoss()

    def call() -> Any:
        rows_ND = problem.hidden_TD[problem.batch.predictors_N]
        return torch.autograd.grad(loss(problem.layer.weight, rows_ND, problem.batch.targets_N), problem.wanted)

    add("Liger FLCE", call)


def check_kernel_alone(device: torch.device, vocabulary: int) -> list[dict[str, Any]]:
    """The row function without the products, and the rate at which it moves logits (read twice, written once)."""
    from dynotune.model.head import triton_rows

    rows = []
    n = 4096
    for block, warps, group in KERNELS:
        z_NV = torch.randn(n, vocabulary, device=device, dtype=torch.bfloat16)
        targets_N, out_3N = torch.randint(0, vocabulary, (n,), device=device), row_statistics(n, z_NV)
        for form in (True, False):
            call = partial(
                triton_rows.rows_in_triton,
                z_NV,
                targets_N,
                RowLoss(),
                LogitMap(),
                form,
                out_3N,
                block=block,
                group=group,
                warps=warps,
            )
            seen = measure(call)
            rate = z_NV.numel() * 2 * (3 if form else 2) / seen["ms"] / 1e9
            rows.append(
                {"case": f"row kernel, {n} rows, {'gradient' if form else 'loss only'}",
                 "method": f"block {block}, {warps} warps, lane {group}, {rate:.2f} TB/s", **seen}
            )  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu_head.json")
    parser.add_argument("--commit", default="", help="commit of the tree, where it is not a git checkout")
    parser.add_argument("--cpu", action="store_true", help="tiny shapes, no times: tests the script")
    args = parser.parse_args()
    device = torch.device("cpu" if args.cpu else "cuda", None if args.cpu else 0)
    torch.backends.cuda.matmul.allow_tf32 = False
    function, reason = row_function(device)
    result: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "commit": args.commit,
        "hardware": "CPU" if args.cpu else torch.cuda.get_device_name(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__}
        | {p: metadata.version(p) for p in ("triton", "liger_kernel") if _installed(p)},
        "row function": getattr(function, "__name__", str(function)),
        "row function's reason": reason,
        "row function's disagreement with torch's operations": disagreement(function, device),
        "chunk bytes": CHUNK_BYTES,
        "errors": check_errors(device, small=args.cpu),
    }
    if not args.cpu:
        result["waits"] = check_waits(device)
        result["far rows"] = check_far_rows(device)
        result["times"] = check_times(device)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "gpu_head.json").write_text(json.dumps(result, indent=1) + "\n")

    for row in result["errors"]:
        errors = " ".join(f"{m:.1e}/{p:.1e}" for m, p in zip(row["error"], row["plain_error"], strict=True))
        print(f"{'ok  ' if row['ok'] else 'FAIL'} {row['precision'][6:]:9s} V={row['shape'][2]:<7d} {row['loss']:12s}"
              f" trained={row['trained']!s:5s} ours/plain: {errors}")  # fmt: skip
    print(f"row function: {result['row function']} {reason or ''}; host waits: {result.get('waits', 'not looked at')}")
    print(f"rows beyond 2 ** 31 elements: {result.get('far rows', 'not looked at')}")
    for row in result.get("times", []):
        figures = f"{row['ms']:8.2f} ms  {row['peak_MiB']:8.0f} MiB" if "ms" in row else row["error"]
        print(f"{row['case']:34s} {row['method']:42s} {figures}")
    checks = [*result["errors"], *(result[name] for name in ("waits", "far rows") if name in result)]
    ok = all(check["ok"] for check in checks) and reason is None
    print("gpu_head: every check holds" if ok else "gpu_head: FAILED")
    sys.exit(not ok)


def _installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    main()
