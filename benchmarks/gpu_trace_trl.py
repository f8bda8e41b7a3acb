"""TRL's SFTTrainer under our tracer: what its default attention does with documents that lie side by side.

    python benchmarks/gpu_trace_trl.py --output OUT/gpu_trace_trl.json [--commit COMMIT] [--tiny]

A Qwen2 shape with random weights, TRL's default attention (`sdpa`), three steps of two micro-batches each, the third one
traced through a TrainerCallback: nothing of TRL or transformers is changed for it. Two arms: `packed` (TRL's packing, which
flattens a batch and tells documents by their positions) and, as the negative control, `alone` (one document a row).

Expected, for T tokens side by side: transformers makes one mask [1, 1, T, T] of booleans a micro-batch (T * T bytes: 64 MiB
at T = 8192) and gives it to the attention of every layer, which is then no flash kernel. T * T pairs are computed, where
the documents need the sum of their n * n / 2. Alone no mask is made. In both arms the host waits in each forward pass, where
transformers asks whether documents lie side by side. The exit code is 1 unless the mask is seen in `packed` and not in
`alone`. `--tiny` does this on the CPU.
"""

import argparse
import importlib.metadata as metadata
import json
import math
import platform
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Qwen2Config, TrainerCallback

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.tiny import tiny_tokenizer

from dynotune.measure.evidence import Evidence, Phase, Source
from dynotune.measure.traces.step import Tracer
from dynotune.speedups.absences import dense_masks, full_logits, full_precision_products, host_waits, math_attention
from dynotune.speedups.expectation import Expectation, Expected
from dynotune.speedups.judge import judge

SHAPE = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 12, "num_attention_heads": 16,
    "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 16384,
}  # fmt: skip
TINY = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 352, "max_position_embeddings": 512,
}  # fmt: skip
TRACED_STEP = 3

MASKED_KERNELS = ("fmha_cutlassF", "cudnn.*sdpa", "flash_fwd", "softmax")
"""What attention may run as on a GPU: memory-efficient, cuDNN, flash, written out."""


class TracedStep(TrainerCallback):
    """One step of any Trainer, traced. `evidence` is there behind it."""

    def __init__(self, number: int, tracer: Tracer, facts: dict[str, Any]) -> None:
        self.number, self.tracer, self.facts = number, tracer, facts
        self.trainer: Any = None
        self.evidence: Evidence | None = None
        self._open = ExitStack()
        self._marks: Any = None
        self._update: AbstractContextManager[Any] | None = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step + 1 != self.number:
            return
        self.facts["tokens"] = []
        self._marks = self._open.enter_context(self.tracer.step(self.number, self.facts))
        self._stand_in(self.trainer, "compute_loss", self._forward)
        self._stand_in(self.trainer.accelerator, "backward", self._backward)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._marks is not None:
            self._update = self._marks.update()
            self._update.__enter__()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._update is not None:
            self._update.__exit__(None, None, None)
            self._update = None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._marks is not None:
            marks, self._marks = self._marks, None
            self._open.close()
            self.evidence = marks.evidence

    def _stand_in(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        own = getattr(owner, name)
        setattr(owner, name, lambda *args, **kwargs: around(own, *args, **kwargs))
        self._open.callback(delattr, owner, name)

    def _forward(self, own: Callable[..., Any], model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        self.facts["tokens"].append(inputs["input_ids"].numel())
        with self._marks.forward(len(self.facts["tokens"]) - 1):
            return own(model, inputs, *args, **kwargs)

    def _backward(self, own: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._marks.backward(len(self.facts["tokens"]) - 1):
            return own(*args, **kwargs)


def documents(count: int, longest: int, vocabulary: int) -> list[dict[str, Any]]:
    """Random documents of lognormal length, median 105, as in the other comparisons with TRL."""
    draw = random.Random(0)
    lengths = [int(min(longest, max(8, draw.lognormvariate(math.log(105), 0.7)))) for _ in range(count)]
    return [{"input_ids": [draw.randrange(2, vocabulary) for _ in range(n)]} for n in lengths]


def arm(name: str, device: torch.device, shape: dict[str, int], row: int, rows: int) -> dict[str, Any]:
    """Train for a few steps, one of them traced, and say what was seen of it."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    torch.manual_seed(0)
    on_gpu = device.type == "cuda"
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(Qwen2Config(**shape), dtype=torch.float32)
    places = [f"model.layers.{i}.self_attn" for i in range(shape["num_hidden_layers"])]
    facts = {"vocabulary": shape["vocab_size"], "compute": "bfloat16" if on_gpu else "float32"}
    callback = TracedStep(TRACED_STEP, Tracer(model, places, device), facts)
    packing = {"packing": True, "max_length": row, "per_device_train_batch_size": rows}
    alone = {"max_length": row, "per_device_train_batch_size": 1}
    with tempfile.TemporaryDirectory() as folder:
        trainer = SFTTrainer(
            model=model,
            args=SFTConfig(
                output_dir=folder, max_steps=TRACED_STEP, gradient_accumulation_steps=2, save_strategy="no", bf16=on_gpu,
                report_to="none", disable_tqdm=True, use_cpu=not on_gpu, gradient_checkpointing=False, logging_steps=1,
                dataloader_pin_memory=on_gpu, **(packing if name == "packed" else alone),
            ),
            train_dataset=Dataset.from_list(documents(60 * rows, row, shape["vocab_size"])),
            processing_class=tiny_tokenizer(),
            callbacks=[callback],
        )  # fmt: skip
        callback.trainer = trainer
        trainer.train()
    assert callback.evidence is not None
    return {"attention": model.config._attn_implementation, **seen(callback.evidence, places)}


def seen(evidence: Evidence, places: list[str]) -> dict[str, Any]:
    absences = (dense_masks(), math_attention(), full_precision_products(), full_logits(), host_waits())
    attention: list[Expectation] = [
        Expected("attention", Phase.FORWARD, operators=("^aten::scaled_dot_product_attention$",), at=tuple(places))
    ]
    took = Counter[str]()
    for one in evidence.matching(("",), source=(Source.KERNEL, Source.COPY)):
        took[one.name[:120]] += int(one.microseconds)
    facts = {key: value for key, value in evidence.facts.items() if key != "unattributed"}
    return {
        "tokens": evidence.facts["tokens"],
        "found": {absent.what: absent.found(evidence) for absent in absences},
        "attention_seen_at": judge(attention, evidence, places).to_json(),
        "attention_kernels": sorted(
            {one.name[:160] for one in evidence.matching(MASKED_KERNELS, source=Source.KERNEL)}
        ),
        "kernels_by_time_us": dict(took.most_common(12)),
        "events": sum(one.count for one in evidence.seen),
        "tracing_seconds": evidence.seconds,
        "facts": facts,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--commit", default="", help="commit of the tree, where it is not a git checkout")
    parser.add_argument("--tiny", action="store_true", help="a tiny model on the CPU")
    args = parser.parse_args()
    device = torch.device("cpu") if args.tiny else torch.device("cuda", 0)
    arms: dict[str, Any] = {}
    for name in ("packed", "alone"):
        try:
            arms[name] = arm(name, device, *((TINY, 128, 2) if args.tiny else (SHAPE, 2048, 4)))
        except (RuntimeError, ValueError, ImportError) as error:
            arms[name] = {"failed": f"{type(error).__name__}: {error}"}
    masks = {name: found.get("found", {}).get("dense attention mask") for name, found in arms.items()}
    failed = [name for name, found in arms.items() if "failed" in found]
    ok = not failed and masks["packed"] is not None and masks["alone"] is None
    out = {
        "command": " ".join(["python", *sys.argv]),
        "commit": args.commit,
        "hardware": "cpu" if args.tiny else torch.cuda.get_device_name(),
        "versions": {p: metadata.version(p) for p in ("torch", "transformers", "trl")}
        | {"python": platform.python_version()},
        "ok": ok,
        "arms": arms,
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(out, indent=1))
    for name, result in arms.items():
        if "failed" in result:
            print(f"{name}: FAILED {result['failed'][:300]}")
            continue
        facts = result["facts"]
        print(
            f"{name}: {result['attention']}, tokens {result['tokens']}, launches {facts['launches']}, device busy"
            f" {facts['device_busy_us'] / 1e3:.1f} of {facts['wall_us'] / 1e3:.1f} ms, unattributed kernels"
            f" {facts['unattributed_kernels']}, tracing {result['tracing_seconds']:.1f} s of {result['events']} events"
        )
        for what, found in result["found"].items():
            print(f"  {what}: {found or 'none'}")
        for kernel in result["attention_kernels"]:
            print(f"  attention kernel: {kernel[:110]}")
    print("ok" if ok else "FAILED: the dense mask must be seen in `packed` and not in `alone`")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
