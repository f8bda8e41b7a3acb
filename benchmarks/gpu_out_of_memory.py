"""Memory that runs out in the middle of a run on a GPU, and the run that goes on with the same losses.

    python benchmarks/gpu_out_of_memory.py --out OUT

Each case trains the same steps three times from the same random weights: undisturbed; with a ballast that a callback lays
into the device's memory before step 4 and makes larger before step 7, so that the allocator itself fails in both; and
undisturbed in the micro-batches that the disturbed run ended with, which shows what another layout's rounding alone does.

It passes if the disturbed run ran out at both steps, went on, held no more memory at the beginning of its steps than the
undisturbed one, and its losses differ by at most 1e-5 (float32), or by at most three times what the third run's do, or 2e-3
(bfloat16), relative. The exit code is 1 if not. `--smoke` runs tiny shapes on the CPU with errors that are made up: it
checks this script and nothing else.
"""

import argparse
import gc
import json
import platform
import sys
import tempfile
import time
from importlib import metadata
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from transformers import TrainerCallback

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
from tests.tiny import tiny_tokenizer

from dynotune import SFTConfig, train_sft
from dynotune.execution.packed import PackedPath

GIB = 1 << 30
STEPS, FIRST, SECOND = 10, 4, 7
LEFT = {FIRST: 0.70, SECOND: 0.45}
"""Of what the undisturbed steps take beside what lives between steps, how much is left from which step on."""

SAID = ("out of memory", "  asked for", "  the device", "  a step", "  does not help", "  helps")

SHAPES: dict[str, dict[str, int]] = {
    "0.5B": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
             "num_key_value_heads": 2, "vocab_size": 151936},
    "shallow": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 6, "num_attention_heads": 14,
                "num_key_value_heads": 2, "vocab_size": 32000},
    "tiny": {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 512},
}  # fmt: skip
LORA = {"use_peft": True, "lora_r": 16, "lora_target_modules": "all-linear", "lora_dropout": 0.0, "learning_rate": 1e-4}
CASES: list[tuple[str, str, int, dict[str, Any], float | None]] = [
    ("full, float32", "shallow", 8192, {"bf16": False, "dtype": "float32", "tf32": False}, 1e-5),
    ("full, bfloat16 compute", "0.5B", 16384, {}, None),
    ("LoRA, bfloat16", "0.5B", 16384, LORA, None),
]
TINY = [("LoRA", "tiny", 512, {**LORA, "use_cpu": True}, 1e-5), ("full", "tiny", 512, {"use_cpu": True}, 1e-5)]


class Watch(TrainerCallback):
    """Memory at the beginning of every step; lays the ballast."""

    def __init__(self, room: dict[int, int] | None = None) -> None:
        self.room, self.ballast, self.step = room or {}, [torch.empty(0)], 0
        self.held: list[int] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.step = state.global_step + 1
        if not torch.cuda.is_available():
            return
        torch.cuda.synchronize()
        self.held.append(torch.cuda.memory_allocated() - sum(one.nbytes for one in self.ballast))
        if self.step in self.room:
            torch.cuda.empty_cache()
            spare = torch.cuda.mem_get_info()[0] - self.room[self.step]
            if spare > 0:
                self.ballast.append(torch.empty(spare, dtype=torch.uint8, device="cuda"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu_out_of_memory.json")
    parser.add_argument("--commit", default="")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    result: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]), "commit": args.commit,
        "hardware": "cpu" if args.smoke else torch.cuda.get_device_name(),
        "versions": {p: metadata.version(p) for p in ("torch", "transformers", "peft")}
        | {"python": platform.python_version()},
        "cases": [],
    }  # fmt: skip
    for name, shape, tokens, settings, bound in TINY if args.smoke else CASES:
        began = time.perf_counter()
        case = measure(shape, tokens, settings, bound, args.smoke)
        result["cases"].append({"case": f"{shape} {name}", **case, "seconds": time.perf_counter() - began})
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "gpu_out_of_memory.json").write_text(json.dumps(result, indent=2) + "\n")
    for case in result["cases"]:
        print(*case["said"], sep="\n")
    print(f"{'case':<32}{'ran out at':>14}{'tokens':>22}{'loss gap':>10}{'layout gap':>12}{'held more':>12}{'':>6}")
    for case in result["cases"]:
        at, tokens = ", ".join(map(str, case["ran_out_at"])), " > ".join(map(str, case["tokens"]))
        print(
            f"{case['case']:<32}{at:>14}{tokens:>22}{case['loss_gap']:>10.1e}{case['layout_gap']:>12.1e}"
            f"{case['held_more_mib']:>8.0f} MiB{'ok' if case['ok'] else 'FAIL':>6}"
        )
    return int(not all(case["ok"] for case in result["cases"]))


def measure(shape: str, tokens: int, settings: dict[str, Any], bound: float | None, smoke: bool) -> dict[str, Any]:
    """Undisturbed, disturbed, and undisturbed as the disturbed run ended."""
    whole = go(shape, tokens, settings, Watch())
    beside = whole["peak"] - max(whole["held"], default=0)
    room = {step: int(share * beside) for step, share in LEFT.items()}
    disturbed = go(shape, tokens, settings, Watch(room), made_up=smoke)
    lowered = [one["micro_batch_tokens"] for one in disturbed["out_of_memory"]]
    smaller = go(shape, lowered[-1] if lowered else tokens, settings, Watch())
    gap, layout = difference(whole, disturbed), difference(whole, smaller)
    at = sorted({one["step"] for one in disturbed["out_of_memory"]})
    more = [b - a for a, b in zip(whole["held"], disturbed["held"], strict=True)]
    held_more = max(more, default=0) / (1 << 20)
    most = bound if bound is not None else max(3 * layout, 2e-3)
    return {
        "ran_out_at": at,
        "tokens": [tokens, *lowered],
        "loss_gap": gap,
        "layout_gap": layout,
        "loss_gap_allowed": most,
        "held_more_mib": held_more,
        "losses": {"undisturbed": whole["losses"], "disturbed": disturbed["losses"], "smaller": smaller["losses"]},
        "peak_gib": whole["peak"] / GIB,
        "out_of_memory": disturbed["out_of_memory"],
        "said": disturbed["said"],
        "undisturbed_said": whole["said"],
        # 64 MiB: what libraries take for work space in other shapes
        "ok": at == [FIRST, SECOND] and gap <= most and held_more <= 64 and not whole["said"] and not smaller["said"],
    }


def difference(a: dict[str, Any], b: dict[str, Any]) -> float:
    """The largest relative one of any step's loss."""
    assert len(a["losses"]) == len(b["losses"]) == STEPS
    return max(abs(x - y) / abs(x) for x, y in zip(a["losses"], b["losses"], strict=True))


def go(shape: str, tokens: int, settings: dict[str, Any], watch: Watch, made_up: bool = False) -> dict[str, Any]:
    """Train; losses, what was said of memory, what was held at the beginning of each step, and the peak."""
    rng = np.random.default_rng(0)
    full = 8192 if shape == "shallow" else 512 if shape == "tiny" else 16384
    lengths = np.full(64, full // 32)  # two full micro-batches a step, of documents that fit smaller ones
    rows = [{"input_ids": rng.integers(5, 340, n).tolist()} for _ in range(STEPS) for n in lengths]
    console = Console(file=StringIO(), width=400)
    original = PackedPath.loss

    def failing(path: PackedPath, batch: Any) -> Any:
        limit = int(full * 0.8) if watch.step >= FIRST else full
        if len(batch.ids_T) > (limit // 2 if watch.step >= SECOND else limit):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.")
        return original(path, batch)

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    with tempfile.TemporaryDirectory() as folder:
        shape_of = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": False}
        config = {**shape_of, **SHAPES[shape], "max_position_embeddings": 32768}
        (Path(folder) / "config.json").write_text(json.dumps(config))
        options = {"learning_rate": 1e-5, **settings}
        if made_up:
            PackedPath.loss = failing  # type: ignore[method-assign]
        try:
            ran = train_sft(
                SFTConfig(
                    model_name_or_path=folder, random_weights=True, output_dir=f"{folder}/run", max_length=None,
                    global_batch_size=len(lengths), num_train_epochs=1, micro_batch_tokens=tokens,
                    packed_execution="on", save_strategy="no", logging_steps=1, disable_tqdm=True, token_cache="off",
                    **options,
                ),
                tokenizer=tiny_tokenizer(), train_dataset=rows, console=console, callbacks=[watch],
            )  # fmt: skip
        finally:
            PackedPath.loss = original  # type: ignore[method-assign]
    text = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    begin = next((i for i, line in enumerate(text) if "out of memory" in line), None)
    said = [] if begin is None else [
        line for line in text[begin:] if line.startswith(SAID) or "taken again" in line
    ]  # fmt: skip
    found = {
        "losses": [row["loss"] for row in ran.metrics],
        "out_of_memory": ran.summary["out_of_memory"],
        "said": said,
        "held": watch.held,
        "peak": int(ran.summary.get("peak_memory_gib", 0) * GIB),
    }
    watch.ballast.clear()
    del ran
    gc.collect()  # a model is held by its own cycles
    return found


if __name__ == "__main__":
    sys.exit(main())
