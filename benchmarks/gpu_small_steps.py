"""Two documents a step, 7B under LoRA: what a replay of the layers takes by branches and padding, and what it is made of.

    python -m benchmarks.gpu_small_steps --out OUT [--commit COMMIT] [--tokens 320,2176x16,264,...]     on the GPU
    python -m benchmarks.gpu_small_steps --out OUT --dry                                                on the CPU

For each token count (2 documents of 129 tokens, or as many as stand behind an `x`; shorter ones where they do not fit): both
passes captured with each kind of `dynotune.model.branches`, and once more with LoRA in the gated activation, compared with
launched passes (hidden states, and gradients of all weights beside the noise of two launched ones, or beside bfloat16's
rounding where the activation adds in float32; another micro-batch is the control), then replayed in turn, there and back
again. At the first token count also: all streams at one priority, head and update, and one traced replay of each kind by
class of kernels. A kernel
of a replay has no operator: its class is that of the kernel of its name and number in a traced launched pass; `ambiguous`
is the share of time in names that have several classes, which is exact without branches only. OUT/gpu_small_steps.json is
whole after each part. Below 120 s on an H200: making the model 15, each token count 12, traces 12; no token count begins
behind `--budget`.

Predictions (`h200_step_graphs.json`: 26.8 ms a step, of which head and update 2 to 3):
- none, 320 tokens: forward 8, backward 16 ms. Of both, frozen products 13 to 14 (10.5 by FLOPs, 6.1 by bytes), LoRA 4.5 (924
  products of 4 to 6 us), attention 1.5, elementwise 2.5, gaps 1.5 to 2.5.
- gradients: -1.2 to -1.6 ms, all in the backward pass (308 products beside others).
- all: -2 to -3 ms (616). LoRA's kernels take longer each, and frozen products up to 5 % longer. If joins cost more than
  1.5 us each (224 of them), all gains no more than gradients does.
- one priority: within 0.2 ms of all.
- 2,176 tokens of 16 documents, 120.5 ms launched ahead of the device by `h200_step_graphs.json`: all -4 to -6 ms, in the
  activation another -4 to -5 (41 of 886 ms at 16,384 tokens); 2,112 tokens within 1 % of 2,176.
- 264, 272 and 288 tokens: within 3 % of 320, since rows come in tiles of 64 or 128; 256 up to 15 % less, 384
  up to 20 % more.
"""

import argparse
import math
import statistics
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from benchmarks.levers.bench import Bench, off
from benchmarks.levers.graph import DOCUMENT, Step
from benchmarks.levers.made_of import made_of, traced, with_works_of
from benchmarks.levers.rounding import in_the_activation
from benchmarks.whole_file import write_json
from dynotune.model.attention.backends import KERNELS
from dynotune.model.attention.segments import grid_of_graphs, segments_of
from dynotune.model.branches import KINDS, Kind, Streams
from dynotune.model.packed import PackedBatch, pack
from dynotune.model.step_graphs import Captured, Launched, Pool
from dynotune.model.step_graphs.passes import Inputs, Run, Shape, layers_of

ONE_PRIORITY = "all, one priority"
IN_ACTIVATION = "all, LoRA in the activation"
ROUNDED = 2e-2
"""Relative: what sums in float32 may be off of those that bfloat16 rounds, in any gradient."""

ROUNDS, REPLAYS = 4, 10
LEAST = 1e-6
"""Relative, of hidden states and gradients: not held against a replay."""


class Size(NamedTuple):
    """Of a micro-batch."""

    tokens: int
    documents: int

    @property
    def length(self) -> int:
        """Of a document."""
        return min(DOCUMENT, self.tokens // self.documents)


def size_of(text: str) -> Size:
    """`2176x16`, or `320` of 2 documents."""
    tokens, _, documents = text.partition("x")
    return Size(int(tokens), int(documents or 2))


class Work(NamedTuple):
    """A micro-batch's layers."""

    run: Run
    inputs: Inputs
    other: Inputs
    batch: PackedBatch


def backend_of(bench: Bench) -> str:
    if bench.rehearse:
        return "reference"
    return "fa3" if KERNELS["fa3"].missing() is None else "varlen"


def work_of(bench: Bench, step: Step, size: Size, backend: str) -> Work:
    first, second = (batch_of(bench, size, seed) for seed in (1, 2))
    found = [
        Inputs(b.ids_T, b.positions_T, segments_of(b.boundaries_S1, b.lengths).boundaries_S1) for b in (first, second)
    ]
    layers = layers_of(
        step.decoder, Shape(size.tokens, len(found[0].boundaries_S1), grid_of_graphs(size.tokens, size.length), backend)
    )

    def run(inputs: Inputs) -> Tensor:
        """As runs call it, and step graphs: under autocast that keeps no casts."""
        with torch.autocast(bench.device.type, torch.bfloat16, enabled=not bench.rehearse, cache_enabled=False):
            return layers(inputs)

    return Work(run, *found, first)


def batch_of(bench: Bench, size: Size, seed: int) -> PackedBatch:
    draw = np.random.default_rng(seed)
    vocabulary = bench.shape["vocab_size"]
    rows = [draw.integers(0, vocabulary, size.length).astype(np.int32) for _ in range(size.documents)]
    return pack([(ids, ids) for ids in rows], size.tokens, bench.device)


@contextmanager
def at_one_priority() -> Iterator[None]:
    streams = Streams(*(torch.cuda.Stream(priority=-3) for _ in range(3)))
    with (
        patch("dynotune.model.branches.streams_of", lambda _: streams),
        patch("dynotune.model.step_graphs.captured.streams_of", lambda _: streams),
    ):
        yield


def make(bench: Bench, step: Step, work: Work, weights: list[Tensor], sums: list[Tensor], pool: Pool, kind: str) -> Any:
    if bench.rehearse:
        return Launched(work.run, work.inputs.copies(), weights, sums)
    with ExitStack() as stack:
        if kind == ONE_PRIORITY:
            stack.enter_context(at_one_priority())
        if kind == IN_ACTIVATION:
            stack.enter_context(in_the_activation(bench, step))
        branches: Kind = "all" if kind not in KINDS else kind
        return Captured(work.run, work.inputs.copies(), weights, sums, pool, branches)


def passed(passes: Any, inputs: Inputs, gradient_TD: Tensor, sums: list[Tensor]) -> list[Tensor]:
    """Hidden states and gradients."""
    for total in sums:
        total.zero_()
    passes.inputs.take(inputs)
    passes.forward()
    hidden_TD = passes.hidden_TD.clone()
    passes.gradient_TD.copy_(gradient_TD)
    passes.backward()
    return [hidden_TD, *(total.clone() for total in sums)]


def worst(found: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    return max(off(f, r) for f, r in zip(found, right, strict=True))


def in_turn(bench: Bench, captured: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Milliseconds of forward and backward replays, each kind's rounds between those of the others."""
    seen: dict[str, list[tuple[float, float]]] = {kind: [] for kind in captured}
    for one in captured.values():
        for _ in range(3):
            one.forward(), one.backward()
    for number in range(1 if bench.rehearse else ROUNDS):
        for kind in list(captured)[:: -1 if number % 2 else 1]:
            seen[kind] += _replayed(bench, captured[kind])
    return {kind: _figures(times) for kind, times in seen.items()}


def _replayed(bench: Bench, passes: Any) -> list[tuple[float, float]]:
    if bench.rehearse:
        began = time.perf_counter()
        passes.forward()
        middle = time.perf_counter()
        passes.backward()
        return [(1e3 * (middle - began), 1e3 * (time.perf_counter() - middle))]
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(3)] for _ in range(REPLAYS)]
    torch.cuda.synchronize()
    for first, second, third in events:
        first.record()
        passes.forward()
        second.record()
        passes.backward()
        third.record()
    torch.cuda.synchronize()
    return [(a.elapsed_time(b), b.elapsed_time(c)) for a, b, c in events]


def _figures(times: list[tuple[float, float]]) -> dict[str, Any]:
    columns = {"forward": [f for f, _ in times], "backward": [b for _, b in times], "both": [f + b for f, b in times]}
    return {
        name: {"ms": statistics.median(one), "least": min(one), "most": max(one), "replays": len(one)}
        for name, one in columns.items()
    }


def rest_of(bench: Bench, step: Step, work: Work, hidden_TD: Tensor) -> dict[str, Any]:
    """What of a step is in no graph: head with loss and its gradient, and the update with clipping."""

    def head() -> Tensor:
        leaf_TD = hidden_TD.detach().requires_grad_()
        loss, _ = step.head(leaf_TD, work.batch, step.objective)
        (loss / len(work.batch.targets_N)).backward()
        return loss.detach()

    loss = head()
    for p in step.trained:
        p.grad = torch.zeros_like(p)
    found = {"head": bench.ms(head), "update": bench.ms(lambda: step.update(loss))}
    step.model.zero_grad(set_to_none=True)
    return found


def row_of(
    bench: Bench, step: Step, size: Size, backend: str, pool: Pool, first: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Times and errors, and of the first token count the rest of a step, and traces: each as it is there."""
    work = work_of(bench, step, size, backend)
    weights = [p for p in step.decoder.parameters() if p.requires_grad]
    sums = [torch.zeros_like(p) for p in weights]
    launched = Launched(work.run, work.inputs.copies(), weights, sums)
    gradient_TD = torch.randn_like(launched.gradient_TD)
    right, again = (passed(launched, work.other, gradient_TD, sums) for _ in range(2))
    noise, control = worst(again, right), worst(passed(launched, work.inputs, gradient_TD, sums), right)
    allowed = max(LEAST, 2 * noise)
    kinds: dict[str, dict[str, Any]] = {}
    captured: dict[str, Any] = {}
    more = () if bench.rehearse else (*([ONE_PRIORITY] if first else []), IN_ACTIVATION)
    for kind in (*KINDS, *more):
        began = time.perf_counter()
        try:
            captured[kind] = make(bench, step, work, weights, sums, pool, kind)
        except RuntimeError:
            kinds[kind] = {"ok": False, "failed": traceback.format_exc()[-2000:]}
            break  # PyTorch's allocator takes no further capture
        took = time.perf_counter() - began
        found = passed(captured[kind], work.other, gradient_TD, sums)
        gap = worst(found, right)
        kinds[kind] = {
            "ok": gap <= max(allowed, ROUNDED if kind == IN_ACTIVATION else 0.0) < control,
            "off": gap, "hidden_equal": torch.equal(found[0], right[0]), "making_s": took,
        }  # fmt: skip
        del found
    for kind, figures in in_turn(bench, captured).items():
        kinds[kind] |= figures
    row = {"tokens": size.tokens, "real": size.documents * size.length, "backend": backend}
    yield "rows", {**row, "noise": noise, "control": control, "kinds": kinds}
    if not first:
        return
    yield "rest", rest_of(bench, step, work, launched.hidden_TD)
    whole = traced(bench, step, launched)
    traces = {"launched": {**made_of(whole), "ambiguous": 0.0}}
    for kind, passes in captured.items():
        kernels, unsure = with_works_of(traced(bench, step, passes), whole)
        traces[kind] = {**made_of(kernels), "ambiguous": unsure}
        yield "traces", {"tokens": size.tokens, **traces}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tokens", default="320,2176x16,264,2112x16,288,256")
    parser.add_argument("--budget", type=float, default=100)
    parser.add_argument("--commit", default="")
    parser.add_argument("--dry", action="store_true")
    args = parser.parse_args()
    began, bench = time.monotonic(), Bench(args.dry, math.inf)
    result: dict[str, Any] = {
        "command": " ".join(["python", "-m", "benchmarks.gpu_small_steps", *sys.argv[1:]]), "commit": args.commit,
        "hardware": "CPU, a rehearsal" if args.dry else torch.cuda.get_device_name(),
        "versions": {name: metadata.version(name) for name in ("torch", "transformers", "peft")}, "rows": [], "rest": [],
        "traces": {}, "failed": {},
    }  # fmt: skip
    step, backend = Step(bench), backend_of(bench)
    step.attention.backend = backend
    pool = Pool()
    result["making_the_model_s"] = time.monotonic() - began
    for number, size in enumerate(map(size_of, args.tokens.split(","))):
        if time.monotonic() - began > args.budget:
            print(f"{size.tokens} tokens: not begun")
            continue
        try:
            with step.attention.engaged():
                for part, told in row_of(bench, step, size, backend, pool, number == 0):
                    if part == "traces":
                        result[part] = told
                    else:
                        result[part].append(told)
                    write_json(args.out / "gpu_small_steps.json", result)
        except Exception:  # noqa: BLE001 - the other token counts are worth the card's time
            result["failed"][str(size.tokens)] = traceback.format_exc()[-3000:]
            print(result["failed"][str(size.tokens)], flush=True)
        if not args.dry:
            torch.cuda.empty_cache()
    result["seconds"] = time.monotonic() - began
    write_json(args.out / "gpu_small_steps.json", result)
    return show(result)


def show(result: dict[str, Any]) -> int:
    fine = not result["failed"]
    for row in result["rows"]:
        print(
            f"{row['tokens']} tokens ({row['real']} real), {row['backend']}: noise {row['noise']:.1e},"
            f" control {row['control']:.1e}"
        )
        for kind, one in row["kinds"].items():
            fine &= one["ok"]
            if "failed" in one:
                print(f"BAD   {kind}: {one['failed'].strip().splitlines()[-1]}")
                continue
            ms = "  ".join(
                f"{name} {one[name]['ms']:.2f} ({one[name]['least']:.2f})" for name in ("forward", "backward", "both")
            )
            print(
                f"{'ok ' if one['ok'] else 'BAD'}   {kind:27} ms: {ms}  off {one['off']:.1e},"
                f" hidden states {'equal' if one['hidden_equal'] else 'not equal'}"
            )
    for told in result["rest"]:
        print("head {:.2f} ms, update {:.2f} ms".format(*(told[name]["ms"] for name in ("head", "update"))))
    for kind, one in result["traces"].items():
        if kind == "tokens":
            continue
        classes = ", ".join(f"{work} {c['ms']:.2f} ({c['count']})" for work, c in one["classes"].items())
        print(
            f"{kind}: {one['span_ms']:.2f} ms, gaps {one['gaps_ms']:.2f}, beside {one['beside_ms']:.2f},"
            f" {one['kernels']} kernels, ambiguous {one['ambiguous']:.0%}: {classes}"
        )
    print(f"{result['seconds']:.0f} s")
    return int(not fine)


if __name__ == "__main__":
    sys.exit(main())
