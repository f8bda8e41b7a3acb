"""Pairs with their prompt computed once, on a GPU: right or not with each attention backend, and how much faster.

    python benchmarks/gpu_shared_prompt.py --output OUT.json

For each backend that loads: its check against float64 with keys behind shared beginnings, then the attention call that
models make, gather and its gradient included, against the exact reference; then times against two separate sequences a pair,
for prompts of 0.5, 2 and 6 times an answer: attention alone, and two decoder layers of the 7B shape around it, whose linear
layers see fewer tokens, too. `--tiny` runs on the CPU with the reference: it checks this script and nothing else. The exit
code is 1 if a backend that loads is wrong.

Prediction, 16,384 tokens in separate sequences: for a ratio r sharing leaves (r + 2) / (2 r + 2) of the tokens, 0.83, 0.67
and 0.57, and layers whose time is linear in tokens gain at most 1.20, 1.50, 1.75. Attention leaves 1 - r^2 / (2 (r + 1)^2)
of the products, 0.94, 0.78 and 0.63, and pays for the gather: 16,384 rows of 2 kB for keys and values, read and written, are
0.07 GB or 0.02 ms forward, and about thrice that backward.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from dynotune.model.attention import hidden_states, packed_attention
from dynotune.model.attention.backends import KERNELS, REFERENCE, Asked, why_not
from dynotune.model.attention.call import packed_attention_call
from dynotune.model.attention.gradient_check import check
from dynotune.model.attention.segments import Segments, segments_of, segments_with_keys
from dynotune.model.families import FamilyBatch, pack_families
from dynotune.model.packed import Document, PackedBatch, pack

SECONDS = 85
"""Nothing new is begun after that."""

RATIOS = (0.5, 2.0, 6.0)
CHECKED = [(28, 4, 128, None), (14, 2, 64, None), (28, 4, 128, 100)]
"""Query heads, key heads, head dimension, window."""

FAILURES = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, OSError, RuntimeError, TypeError,
            ValueError, torch._dynamo.exc.TorchDynamoException)  # fmt: skip
NAMES = ("output", "gradient of queries", "gradient of keys", "gradient of values")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="where the JSON goes")
    parser.add_argument("--commit", default="")
    parser.add_argument("--only", default="fa3,varlen,fa4,flex,cudnn", help="names of backends, with commas")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    args.output.parent.mkdir(parents=True, exist_ok=True)
    until, device = time.time() + SECONDS, torch.device("cpu" if args.tiny else "cuda")
    result: dict[str, Any] = {
        "command": " ".join(["benchmarks/gpu_shared_prompt.py", *sys.argv[1:]]), "commit": args.commit,
        "device": "CPU" if args.tiny else torch.cuda.get_device_name(), "torch": torch.__version__,
        "python": platform.python_version(), "date": time.strftime("%Y-%m-%d"), "backends": {},
    }  # fmt: skip
    layers = decoder(args.tiny, device)
    for name in [REFERENCE] if args.tiny else args.only.split(","):
        row: dict[str, Any] = {}
        result["backends"][name] = row
        bench = Bench(name, args.tiny, device, layers, until)
        try:
            row |= bench.run()
        except FAILURES as error:
            row["failed"] = f"{type(error).__name__}: {str(error)[:300]}"
        args.output.write_text(json.dumps(result, indent=1))  # what is known, should the process end
        print(name, json.dumps(row, indent=1))
    return int(any(row.get("wrong") or "failed" in row for row in result["backends"].values()))


class Bench:
    def __init__(self, name: str, tiny: bool, device: torch.device, layers: Any, until: float) -> None:
        self.name, self.tiny, self.device, self.layers, self.until = name, tiny, device, layers, until

    def run(self) -> dict[str, Any]:
        found: dict[str, Any] = {"checks": [], "times": []}
        if not self.tiny:
            reason = why_not(KERNELS[self.name], self.asked(28, 4, 128, None))
            if reason is not None:
                return {"left out": reason}
        few = self.name == "flex"  # it compiles for each shape
        for heads, key_heads, dim, window in [(4, 2, 16, 9)] if self.tiny else CHECKED[: 1 if few else None]:
            one: dict[str, Any] = {"heads": f"{heads}/{key_heads}x{dim}, window {window}"}
            found["checks"].append(one)
            if time.time() > self.until:
                one["left out"] = "no time left"
                continue
            if not self.tiny:
                of_kernel = check(KERNELS[self.name], self.asked(heads, key_heads, dim, window), dim**-0.5)
                one |= {"kernel": of_kernel.to_json(), "reason": of_kernel.reason}
            one |= self.whole_call(heads, key_heads, dim, window)
        found["wrong"] = any(one.get("reason") or not one.get("right", True) for one in found["checks"])
        for ratio in (2.0,) if few else RATIOS:
            if time.time() > self.until:
                found["times"].append({"ratio": ratio, "left out": "no time left"})
                continue
            found["times"].append({"ratio": ratio} | self.times(ratio))
        return found

    def asked(self, heads: int, key_heads: int, dim: int, window: int | None) -> Asked:
        return Asked(self.device, torch.bfloat16, heads, key_heads, dim, dim, window, None, shared=True)

    def whole_call(self, heads: int, key_heads: int, dim: int, window: int | None) -> dict[str, Any]:
        """Gather, attention and their gradients, against float64: at most 1.5 times the plain path's error."""
        families = pairs(200 if self.tiny else 1500, 2.0)
        segments = segments_behind(pack_families(families, tokens_of(families, 64), self.device))
        leaves = drawn(sum(segments.lengths), heads, key_heads, dim, self.device)
        gradient = torch.randn_like(leaves[0]).transpose(1, 2)
        exact = self.outcome(segments, [x.double() for x in leaves], gradient.double(), window, REFERENCE)
        plain = self.outcome(segments, leaves, gradient, window, REFERENCE)
        ours = self.outcome(segments, leaves, gradient, window, self.name)
        errors = {name: distance(a, b) for name, a, b in zip(NAMES, ours, exact, strict=True)}
        allowed = {name: 1.5 * distance(a, b) for name, a, b in zip(NAMES, plain, exact, strict=True)}
        return {"errors": errors, "allowed": allowed, "right": all(errors[k] <= allowed[k] for k in NAMES)}

    def outcome(
        self, segments: Segments, inputs: list[Tensor], gradient: Tensor, window: int | None, backend: str
    ) -> list[Tensor]:
        leaves = [x.detach().requires_grad_() for x in inputs]
        out = self.call(segments, leaves, window, backend)
        return [out.detach(), *torch.autograd.grad(out, leaves, gradient)]

    def call(self, segments: Segments, leaves: list[Tensor], window: int | None, backend: str) -> Tensor:
        plan = KERNELS[backend].prepare(segments, nn.Module()) if backend in KERNELS else None
        return packed_attention_call(
            nn.Identity(), *leaves, None, sliding_window=window, attention_backend=backend, attention_plan=plan,
            **segments.keywords(),
        )[0]  # fmt: skip

    def times(self, ratio: float) -> dict[str, Any]:
        """Milliseconds, forward and backward, of the same pairs shared and as separate sequences."""
        families = pairs(256 if self.tiny else 16384, ratio)
        separate = [document for family in families for document in family]
        batches: dict[str, FamilyBatch | PackedBatch] = {
            "shared": pack_families(families, tokens_of(families, 128), self.device),
            "separate": pack(separate, ceil(sum(len(ids) for ids, _ in separate), 128), self.device),
        }
        found: dict[str, Any] = {"pairs": len(families)}
        for kind, batch in batches.items():
            heads = (4, 2, 16) if self.tiny else (28, 4, 128)
            segments = segments_behind(batch)
            leaves = [x.requires_grad_() for x in drawn(len(batch.ids_T), *heads, self.device)]
            gradient = torch.randn_like(leaves[0]).transpose(1, 2)
            found[kind] = {"tokens": len(batch.ids_T)} | {"attention_ms": self.milliseconds(
                lambda s=segments, x=leaves, g=gradient: torch.autograd.grad(self.call(s, x, None, self.name), x, g)
            )}  # fmt: skip
            found[kind]["layers_ms"] = self.milliseconds(lambda b=batch: self.through_layers(b))
            if isinstance(batch, FamilyBatch):
                found[kind] |= {"keys": len(batch.key_rows_K)}
                found[kind]["gather_ms"] = self.milliseconds(lambda b=batch, x=leaves: self.gather(b, x[1:]))
        for what in ("attention_ms", "layers_ms"):
            ours, theirs = found["shared"][what]["median"], found["separate"][what]["median"]
            found[f"{what.removesuffix('_ms')}_gain"] = round(theirs / ours, 3)
        return found

    def through_layers(self, batch: FamilyBatch | PackedBatch) -> None:
        with packed_attention(self.layers, self.name):
            hidden_states(self.layers, batch).sum().backward()
        self.layers.zero_grad()

    def gather(self, batch: FamilyBatch, leaves: list[Tensor]) -> None:
        for x in leaves:
            rows = x[0].transpose(0, 1).index_select(0, batch.key_rows_K)
            torch.autograd.grad(rows, x, torch.ones_like(rows))

    def milliseconds(self, f: Callable[[], Any]) -> dict[str, float]:
        found = []
        for i in range(2 if self.tiny else 13):
            began = self.mark()
            f()
            ended = self.mark()
            if self.tiny:
                found.append(1e3 * (ended - began))
            elif i >= 3:
                torch.cuda.synchronize()
                found.append(began.elapsed_time(ended))
        return {"median": round(statistics.median(found), 4), "spread": round(max(found) - min(found), 4)}

    def mark(self) -> Any:
        if self.tiny:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def decoder(tiny: bool, device: torch.device) -> Any:
    """Two layers of the 7B shape, without its vocabulary."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    shape = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    if not tiny:
        shape = {"hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28, "num_key_value_heads": 4}
    config = Qwen2Config(num_hidden_layers=2, vocab_size=512, max_position_embeddings=32768, use_cache=False, **shape)
    torch.manual_seed(0)
    with device:
        return Qwen2ForCausalLM(config).bfloat16().train()


def pairs(tokens: int, ratio: float) -> list[list[Document]]:
    """Pairs whose two sequences have about `tokens` tokens together: lognormal answers, prompts `ratio` times as long."""
    generator, families, used = np.random.default_rng(1234), [], 0
    median = 12 if tokens < 1000 else 150
    while used < tokens:
        answers = np.clip(generator.lognormal(np.log(median), 0.6, 2), 2, 4 * median).astype(int)
        prompt = generator.integers(1, 500, max(1, int(ratio * answers.mean())))
        bodies = [np.append(5 + i, generator.integers(1, 500, n - 1)) for i, n in enumerate(answers)]
        family = [np.concatenate([prompt, body]).astype(np.int32) for body in bodies]
        families.append([(ids, ids) for ids in family])
        used += sum(map(len, family))
    return families


def tokens_of(families: list[list[Document]], step: int) -> int:
    """Of the shared layout, with at least one of padding, so that keys can be padded, too."""
    from dynotune.model.families import trunk_of

    trunks = [trunk_of([ids for ids, _ in family]) for family in families]
    real = sum(
        trunk + sum(len(ids) - trunk for ids, _ in family) for trunk, family in zip(trunks, families, strict=True)
    )
    return ceil(real + 1, step)


def ceil(n: int, step: int) -> int:
    return -(-n // step) * step


def segments_behind(batch: FamilyBatch | PackedBatch) -> Segments:
    own = batch.boundaries_S1, batch.lengths
    if isinstance(batch, PackedBatch):
        return segments_of(*own)
    return segments_with_keys(*own, batch.key_rows_K, batch.key_boundaries_S1, batch.key_lengths)


def drawn(tokens: int, heads: int, key_heads: int, dim: int, device: torch.device) -> list[Tensor]:
    """Query, key and value [1, heads, T, D], stored token by token as a model's projections are."""
    shapes = [(1, tokens, n, dim) for n in (heads, key_heads, key_heads)]
    return [torch.randn(shape, device=device, dtype=torch.bfloat16).transpose(1, 2) for shape in shapes]


def distance(ours: Tensor, right: Tensor) -> float:
    return float((ours.double() - right.double()).norm() / right.double().norm())


if __name__ == "__main__":
    sys.exit(main())
