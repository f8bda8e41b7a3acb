"""Whole steps for gpu_liger.py: eight layers of Qwen2.5-7B's shape, packed, with our kernels, with all or one of Liger's.

Forward and backward of one micro-batch; LoRA r=32 on all linears over a bfloat16 base, or all weights in float32 computed in
bfloat16. The gap of loss and gradient norm to the plain operations is recorded beside each time.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from transformers import AutoConfig, AutoModelForCausalLM

from dynotune.config.keys.objective import SFTObjectiveConfig
from dynotune.model.attention import hidden_states, packed_attention
from dynotune.model.elementwise import install
from dynotune.model.elementwise.install import KINDS
from dynotune.model.elementwise.usable import Kernels
from dynotune.model.head import Head, find_head
from dynotune.model.liger.head import LigerHead
from dynotune.model.liger.usable import kernels
from dynotune.model.lora import install as install_lora
from dynotune.model.packed import pack
from dynotune.objectives.sft import SFTObjective

SHAPE = {
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 8, "num_attention_heads": 28,
    "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 16384, "rope_theta": 1e6,
}  # fmt: skip
TINY = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "vocab_size": 301, "max_position_embeddings": 512,
}  # fmt: skip
DOCUMENT = 512
EXPECTED = {
    "RMSNorm": r"_(block_)?rms_norm_(forward|backward)_kernel", "rotary embedding": r"_triton_rope",
    "gated activation": r"_swiglu_(forward|backward)_kernel", "head": r"liger_cross_entropy_kernel",
}  # fmt: skip
"""Kernels of Liger's by what they stand in for, as the declarations expect them."""

VARIANTS: dict[str, dict[str, str]] = {
    "plain": {},
    "ours": dict.fromkeys((*KINDS, "head"), "ours"),
    "liger": dict.fromkeys((*KINDS, "head"), "liger"),
    **{
        f"ours, {kind} by liger": dict.fromkeys((*KINDS, "head"), "ours") | {kind: "liger"} for kind in (*KINDS, "head")
    },
}
"""By what stands in for each kind. Where nothing does the model's own operations answer, and the head is ours."""


class Step:
    """A model, a micro-batch, and forward and backward."""

    def __init__(self, bench: Any, full: bool) -> None:
        self.bench, self.full = bench, full
        shape = TINY if bench.tiny else SHAPE
        tokens = 12 if bench.tiny else 16_384
        torch.manual_seed(0)
        with bench.device:
            dtype = torch.float32 if full else bench.low
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen2", **shape), dtype=dtype)
            if not full:
                config = LoraConfig(
                    r=32, lora_alpha=64, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
                )
                model = get_peft_model(model, config)
        self.model: Any = model.train()
        if not full:
            for name, p in model.named_parameters():
                if "lora_B" in name:
                    torch.nn.init.normal_(p, std=0.02)
            install_lora(self.model, bench.low)
        found = find_head(self.model, torch.arange(1, 9, device=bench.device))
        assert found.head is not None, found.why_not
        self.head, self.objective = found.head, SFTObjective(SFTObjectiveConfig())
        packed_attention(self.model)
        random, size = np.random.default_rng(0), min(DOCUMENT, tokens // 2)
        rows = [random.integers(0, shape["vocab_size"], size).astype(np.int32) for _ in range(tokens // size)]
        self.batch = pack([(ids, ids) for ids in rows], tokens, bench.device)

    def __call__(self, head: Head) -> tuple[Tensor, Tensor]:
        """Loss and the gradients' norm."""
        autocast = torch.autocast("cuda", torch.bfloat16) if self.full and not self.bench.tiny else nullcontext()
        with autocast:
            loss, _ = head(hidden_states(self.model, self.batch), self.batch, self.objective)
        loss.backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        self.model.zero_grad(set_to_none=True)
        return loss.detach(), norm

    @contextmanager
    def with_kernels(self, variant: dict[str, str]) -> Iterator[tuple[Head, list[str]]]:
        """The head, and what was said of what was put in."""
        liger = kernels()
        assert isinstance(liger, Kernels), liger
        engaged = [
            install(
                self.model, self.bench.low, [kind for kind in KINDS if variant.get(kind) == whose], theirs, called=whose
            )
            for whose, theirs in (("ours", None), ("liger", liger))
        ]
        is_liger = variant.get("head") == "liger"
        head = LigerHead(self.head.module, self.head.logits, self.head.vocabulary) if is_liger else self.head
        try:
            yield head, [line for one in engaged for line in one.lines()]
        finally:
            self.model.zero_grad(set_to_none=True)
            for one in engaged:
                one.uninstall()


def steps(bench: Any, full: bool) -> list[dict[str, Any]]:
    step = Step(bench, full)
    rows: list[dict[str, Any]] = []
    plain: tuple[float, float] | None = None
    for name, variant in VARIANTS.items():
        row: dict[str, Any] = {"op": "full" if full else "lora", "shape": "7B, 8 layers", "way": name}
        try:
            row |= figures(bench, step, variant)
            found = row["loss"], row["grad_norm"]
            plain = plain or found
            row["gaps"] = [abs(a - b) / abs(b) for a, b in zip(found, plain, strict=True)]
            row["ok"] = max(row["gaps"]) < 1e-2 and not row["missing"]
            row["note"] = f"gaps {row['gaps'][0]:.1e} {row['gaps'][1]:.1e} {row['missing'] or ''}"
        except Exception as failure:  # noqa: BLE001  (the other variants go on)
            row["failed"] = f"{type(failure).__name__}: {str(failure)[:500]}"
        rows.append(row)
        print(row, flush=True)
    return rows


def figures(bench: Any, step: Step, variant: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def put_in_and_run() -> None:
        with step.with_kernels(variant) as (head, lines):
            found["lines"] = lines
            step(head)

    found["first_s"] = bench.seconds(put_in_and_run)  # with the comparison of each module and all compilation
    with step.with_kernels(variant) as (head, _):
        loss, norm = step(head)
        found |= {"loss": float(loss), "grad_norm": float(norm)}
        found |= bench.measure(lambda: step(head), calls=6)
        found["peak_MiB"] = bench.peak_mib(lambda: step(head))
        seen = kernels_of(bench, lambda: step(head))
    found["liger_kernels"] = {
        kind: sum(n for name, n in seen.items() if re.search(e, name)) for kind, e in EXPECTED.items()
    }
    wanted = {kind for kind, whose in variant.items() if whose == "liger"}
    there = {kind for kind, n in found["liger_kernels"].items() if n}
    found["missing"] = [] if bench.tiny else sorted(wanted ^ there)
    return found


def kernels_of(bench: Any, call: Callable[[], Any]) -> Counter[str]:
    if bench.tiny:
        return Counter()
    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        call()
        bench.wait()
    return Counter(event.name for event in prof.events())
