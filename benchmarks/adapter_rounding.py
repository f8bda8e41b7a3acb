"""Whether what an adapter adds survives bfloat16's rounding: losses of the same few steps, in float32 and in bfloat16.

    python -m benchmarks.adapter_rounding --out OUT.json --shared SHARED [--layers 4] [--commit COMMIT]
    python -m benchmarks.adapter_rounding --out OUT.json --tiny

A new adapter adds little: behind a step at a learning rate of 1e-5 some 1e-4 to outputs around 1, and half of what bfloat16
can tell apart there is 4e-3. PEFT, and whoever adds behind the frozen product's rounding, adds nothing to most values then.
The kernel of `lora_in_activation` adds in float32 before anything is rounded. Which of the two is nearer to float32 is what
this asks: all arms begin at the same weights (rounded to bfloat16 once), take the same rows and the same steps.

On a GPU: layers of the 7B's shape, 64 conversations of `sft_mix` a step, 8 steps, 120 s on an H200. `--tiny`: on a CPU, with
plain operations, into which gate's and up's adapters are added in float32 by hand; two minutes.
"""

import argparse
import gc
import random
import tempfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F
from transformers import TrainerCallback

from benchmarks.peers.arm import by_dynotune, by_trl
from benchmarks.peers.keep import commit_of_tree
from benchmarks.peers.rows import ROWS, Row
from benchmarks.peers.work import common, model_of, rows_of, tokenizer_of
from benchmarks.whole_file import write_json
from dynotune.environment import cpu_model

STEPS = 8
OWN = (
    "attention_fa3", "gated_activation_kernel", "rms_norm_kernel", "rotary_kernel", "fused_add_rms_norm", "fused_lora",
    "lora_in_activation", "labelled_rows_head", "shared_prompt", "liger_rope", "liger_swiglu", "liger_rms_norm",
)  # fmt: skip
PLAIN = {"speedups": dict.fromkeys(OWN, "off")}
RIGHT = "float32, plain operations"
TRL = "TRL fa2 + Liger, bfloat16"
TINY = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 512, "tie_word_embeddings": False}  # fmt: skip
ON_GPU: dict[str, dict[str, Any]] = {
    RIGHT: {**PLAIN, "bf16": False},
    "bfloat16, plain operations": {"speedups": {**PLAIN["speedups"], "packed_execution": "off"}},
    "bfloat16, packed execution alone": PLAIN,
    "bfloat16, all but lora_in_activation": {"speedups": {"lora_in_activation": "off"}},
    "bfloat16, all": {},
}
ON_CPU: dict[str, dict[str, Any]] = {
    RIGHT: {**PLAIN, "bf16": False},
    "bfloat16, plain operations": PLAIN,
    "bfloat16, gate and up added in float32": {**PLAIN, "by_hand": True},
}


class AddedInFloat32(TrainerCallback):
    """What the kernel does, by PyTorch's operations: gate's and up's adapters are added, and the activation computed, before
    anything is rounded."""

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        for module in model.modules():
            if hasattr(module, "gate_proj") and hasattr(module, "up_proj"):
                module.forward = self.forward_of(module)

    @staticmethod
    def forward_of(mlp: Any) -> Any:
        def wide(linear: Any, x: torch.Tensor) -> torch.Tensor:
            [name] = linear.active_adapters
            u = linear.lora_A[name](x)
            B = linear.lora_B[name].weight.to(u.dtype).float()
            return linear.base_layer(x).float() + linear.scaling[name] * F.linear(u.float(), B)

        def forward(x: torch.Tensor) -> torch.Tensor:
            hidden = F.silu(wide(mlp.gate_proj, x)) * wide(mlp.up_proj, x)
            return mlp.down_proj(hidden.to(x.dtype))  # type: ignore[no-any-return]

        return forward


def tiny() -> tuple[Row, Any, list[dict[str, Any]]]:
    """Eight documents a step, of tokens as unequally frequent as words are."""
    from tests.tiny import tiny_tokenizer

    draw = random.Random(0)
    often = [1 / (i + 1) for i in range(330)]
    rows = [
        {"input_ids": draw.choices(range(5, 335), weights=often, k=draw.randrange(20, 60))} for _ in range(8 * STEPS)
    ]
    return (
        replace(ROWS["sft-mix"], content={"max_length": 256, "per_device_train_batch_size": 8}),
        tiny_tokenizer(),
        rows,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shared", type=Path)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--commit", default="", help="of the tree, where it is not a git checkout")
    args = parser.parse_args()
    if args.tiny:
        row, tokenizer, rows = tiny()
        arms, changes, shape = ON_CPU, TINY, f"--tiny: {TINY}"
    else:
        row = ROWS["sft-mix"]
        tokenizer = tokenizer_of(row, args.shared)
        rows = rows_of(row, args.shared, tokenizer)
        arms, changes, shape = ON_GPU, {"num_hidden_layers": args.layers}, f"{row.shape}, {args.layers} layers"
    row = replace(row, window=1, windows=STEPS - 1, warm_up=1)
    result: dict[str, Any] = {
        "command": "python -m benchmarks.adapter_rounding --out OUT"
        + (" --tiny" if args.tiny else f" --shared SHARED --layers {args.layers}"),
        "commit": args.commit or commit_of_tree(),
        "hardware": cpu_model() if args.tiny else torch.cuda.get_device_name(),
        "versions": {name: metadata.version(name) for name in ("torch", "transformers", "peft")},
        "model": shape,
        "learning_rate": common(row)["learning_rate"],
        "arms": {},
    }
    for name in [*arms, *([] if args.tiny else [TRL])]:
        best = dict(row.arms["trl tuned: fa2 + Liger, 64 padding-free"].settings)
        attention = best.pop("attn") if name == TRL else "sdpa"
        own = best if name == TRL else {"gradient_checkpointing": False, **arms[name]}
        settings = {**common(row), **own, **({"use_cpu": True} if args.tiny else {})}
        model = model_of("qwen2.5-7b", attention, "float32", **changes).to(torch.bfloat16)  # rounded once, for all arms
        if not settings["bf16"]:
            model = model.float()
        with tempfile.TemporaryDirectory() as folder:
            if name == TRL:
                found = by_trl(row, settings, model, rows, tokenizer, f"{folder}/run")
            else:
                by_hand = [AddedInFloat32()] if settings.pop("by_hand", False) else []
                found = by_dynotune(row, settings, model, rows, tokenizer, f"{folder}/run", *by_hand)
        result["arms"][name] = {key: found[key] for key in ("losses", "grad_norms")}
        write_json(args.out, result)
        del model, found
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    right = result["arms"][RIGHT]["losses"]
    print("off float32's loss, step by step:")
    for name, one in result["arms"].items():
        print(f"{name:40}", " ".join(f"{a - b:+.5f}" for a, b in zip(one["losses"], right, strict=True)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
