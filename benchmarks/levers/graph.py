"""A step's layers as two CUDA graphs, forward and backward, for `gpu_levers.py`: is it the same, and what does it save?

What a graph holds must have one shape: token ids, positions and boundaries [S + 1] stand in buffers that are written before
each replay, and the longest segment is a bound. The head sees as many rows as a step has labels, so it stays outside, and so
do the loss, clipping and the update.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from benchmarks.levers.bench import FLOPS, Bench, Row, off
from benchmarks.shapes import QWEN, config_of
from dynotune.config.keys.objective import SFTObjectiveConfig
from dynotune.model.attention import packed_attention
from dynotune.model.attention.decoder import text_decoder
from dynotune.model.attention.segments import segments_of
from dynotune.model.elementwise import install as install_kernels
from dynotune.model.head import find_head
from dynotune.model.lora import install as install_lora
from dynotune.model.packed import PackedBatch, pack
from dynotune.objectives.sft import SFTObjective
from dynotune.train.optimizer import Update

DOCUMENT = 129
LORA = {"r": 32, "lora_alpha": 64, "lora_dropout": 0.0, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}


class Layers(nn.Module):
    """The decoder as a function of tensors of fixed shapes."""

    def __init__(self, decoder: nn.Module, backend: str, lengths: tuple[int, ...]) -> None:
        super().__init__()
        self.decoder, self.backend, self.lengths = decoder, backend, lengths

    def forward(self, ids_T: Tensor, positions_T: Tensor, boundaries_S1: Tensor) -> Tensor:
        segments = segments_of(boundaries_S1, self.lengths)
        out: Any = self.decoder(
            input_ids=ids_T[None], position_ids=positions_T[None], use_cache=False, attention_backend=self.backend,
            **segments.keywords(),
        )  # fmt: skip
        return out.last_hidden_state[0]  # type: ignore[no-any-return]


class Step:
    """A tiny or a 7B model with all that a run has in it; `loss` of a batch by a way of running the layers."""

    def __init__(self, bench: Bench, layers: int | None = None) -> None:
        torch.manual_seed(0)
        shape = {**bench.shape, "num_hidden_layers": layers or bench.shape.get("num_hidden_layers", 2)}
        with bench.device:
            model = AutoModelForCausalLM.from_config(
                config_of({**QWEN, **shape, "tie_word_embeddings": False}), dtype=bench.low
            )
            self.model: Any = get_peft_model(model, LoraConfig(**LORA)).train()  # type: ignore[arg-type]
        for name, p in self.model.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(p, std=0.02)
        self.lora = install_lora(self.model, bench.low)
        if bench.device.type == "cuda":
            install_kernels(self.model, bench.low)
        found = find_head(self.model, torch.arange(1, 17, device=bench.device))
        assert found.head is not None, found.why_not
        self.attention = packed_attention(self.model)
        self.decoder = text_decoder(self.model)
        self.head, self.objective = found.head, SFTObjective(SFTObjectiveConfig())
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        self.update = Update(self.trained, torch.optim.AdamW(self.trained, lr=0.0, fused=True), 1.0)

    def batch(self, bench: Bench, tokens: int, seed: int) -> PackedBatch:
        draw = np.random.default_rng(seed)
        lengths = [DOCUMENT] * (tokens // DOCUMENT) or [tokens]
        rows = [draw.integers(0, bench.shape["vocab_size"], n).astype(np.int32) for n in lengths]
        return pack([(ids, ids) for ids in rows], tokens, bench.device)

    def backward(self, layers: Callable[..., Tensor], batch: PackedBatch) -> Tensor:
        hidden_TD = layers(batch.ids_T, batch.positions_T, batch.boundaries_S1)
        loss, _ = self.head(hidden_TD, batch, self.objective)
        (loss / len(batch.targets_N)).backward()
        return loss.detach()

    def gradients(self, layers: Callable[..., Tensor], batch: PackedBatch) -> list[Tensor]:
        loss = self.backward(layers, batch)
        found = [loss, *(p.grad.clone() for p in self.trained if p.grad is not None)]
        self.model.zero_grad(set_to_none=True)
        return found

    def summed(self, layers: Callable[..., Tensor], batches: list[PackedBatch], buffers: bool) -> list[Tensor]:
        """Gradients of several micro-batches. buffers: sums stand in tensors of their own from the start; without, autograd
        may take what a replay wrote for the sum, and the next replay writes there."""
        for p in self.trained:
            p.grad = torch.zeros_like(p) if buffers else None
        for batch in batches:
            self.backward(layers, batch)
        found = [p.grad.clone() for p in self.trained if p.grad is not None]
        self.model.zero_grad(set_to_none=True)
        return found


def graph_rows(bench: Bench) -> Iterator[Row]:
    step = Step(bench)
    backends = ("reference",) if bench.rehearse else ("fa3", "varlen")
    for tokens in (64,) if bench.rehearse else (320, 2176):
        for backend in backends:
            if bench.late():
                return
            try:
                yield one_row(bench, step, tokens, backend)
            except (RuntimeError, ImportError, AssertionError) as error:  # not here, or it cannot be captured
                why = f"{type(error).__name__}: {error}"[:2000]
                case = f"{tokens} tokens, {backend}"
                yield {"part": "graph", "case": case, "ok": False, "floor_ms": 0.0, "ways": {}, "failed": why}


def one_row(bench: Bench, step: Step, tokens: int, backend: str) -> Row:
    first, second = (step.batch(bench, tokens, seed) for seed in (1, 2))
    step.attention.backend = backend
    with step.attention.engaged():
        layers = Layers(step.decoder, backend, first.lengths)
        right = [step.gradients(layers, batch) for batch in (first, second)]
        sums = step.summed(layers, [first, second], True)
        again = [step.gradients(layers, batch) for batch in (first, second)]
        graphed: Callable[..., Tensor] = layers
        if not bench.rehearse:
            sample = tuple(x.clone() for x in (first.ids_T, first.positions_T, first.boundaries_S1))
            graphed = torch.cuda.make_graphed_callables(
                Layers(step.decoder, backend, first.lengths), sample, allow_unused_input=True
            )
        found = [step.gradients(graphed, batch) for batch in (first, second)]
        noise, gap = (max(map(_worst, one, right)) for one in (again, found))
        # Negative control: the second batch is another one, so a graph that kept the first's ids would be seen.
        differs = _worst(right[0], right[1])

        apart, taken = (_worst(step.summed(graphed, [first, second], buffers), sums) for buffers in (True, False))

        def whole(way: Callable[..., Tensor]) -> Callable[[], None]:
            def call() -> None:
                step.update(step.backward(way, second))

            return call

        ways = {"launched": bench.ms(whole(layers)), "graphed": bench.ms(whole(graphed))}
    weights = sum(p.numel() for name, p in step.decoder.named_parameters() if p.dim() == 2 and "embed" not in name)
    return {
        "part": "graph", "case": f"{tokens} tokens, {backend}", "ok": max(gap, apart) <= max(2 * noise, 1e-5) < differs,
        "errors": {
            "again": noise, "graphed": gap, "another batch": differs, "two micro-batches": apart,
            "two micro-batches, sums not in buffers": taken,
        },
        "floor_ms": 1e3 * 4 * tokens * weights / FLOPS, "ways": ways,
    }  # fmt: skip


def _worst(found: list[Tensor], right: list[Tensor]) -> float:
    return max(off(f, r) for f, r in zip(found, right, strict=True))
