"""What a profile of an unedited TRL run says of its packed attention, and whether leaving that gains what was predicted.

    python benchmarks/gpu_profile_trl.py --out OUT [--only sdpa,varlen,bench] [--layers 28] [--pairs 3] [--commit COMMIT]

TRL's SFTTrainer, packing on, LoRA on the 7B shape of the baseline with random weights, 4 rows of 2048. Two commands of this
file: `--train sdpa`, TRL's default, where transformers isolates packed documents by a mask [1, 1, T, T]; and `--train
varlen`, the same with an attention function that is registered beside it and calls PyTorch's kernel for packed documents.

1. `dynotune profile -- ... --train sdpa`: the report must name the dense mask, and predicts what leaving it saves of a step.
2. The same of `--train varlen`: it must not name it (the negative control).
3. `dynotune bench -- A :: B` measures both, in pairs: the predicted saving is asked for within 20 % of the measured one.

Prediction from the baseline (980 ms a step with sdpa, 671 with FlashAttention-2): 280 to 330 ms saved, 1.40x to 1.50x.
The exit code is 1 unless all three hold. Each part is written when it is there, and one that is there is not done again:
where calls are short, `--only` names the parts of each, and a part that is cut off is begun again. A bench takes seven
processes and more; fewer `--layers` make each shorter, and then all parts are of so many.

`--tiny` rehearses on the CPU, where the attention function computes document by document: there only the names must be
right, and the times are no measurement.
"""

import argparse
import importlib.metadata as metadata
import json
import math
import os
import platform
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

STEPS, WARM = 20, 5
"""Of a training under bench, and those of them that its report leaves out."""

WITHIN = 0.20


def varlen(
    module: Any, q: Any, k: Any, v: Any, mask: Any, scaling: float | None = None, **more: Any
) -> tuple[Any, None]:
    """Attention of documents side by side, [1, heads, T, head_dim], by the ends that TRL's collator passes through."""
    import torch
    from torch.nn import functional as F

    ends = more["cu_seq_lens_q"]
    if q.device.type == "cuda":
        from torch.nn.attention.varlen import varlen_attn

        groups = q.shape[1] // k.shape[1]
        k, v = (one.repeat_interleave(groups, 1) for one in (k, v))  # PyTorch 2.11's takes no groups
        flat = [one[0].transpose(0, 1).contiguous() for one in (q, k, v)]
        longest = int(more["max_length_q"])
        return varlen_attn(*flat, ends, ends, longest, longest, window_size=(-1, 0))[None], None
    parts = [
        F.scaled_dot_product_attention(
            q[:, :, a:b], k[:, :, a:b], v[:, :, a:b], is_causal=True, scale=scaling, enable_gqa=True
        )
        for a, b in zip(ends.tolist(), ends.tolist()[1:], strict=False)
    ]
    return torch.cat(parts, 2).transpose(1, 2), None


def train(attention: str, tiny: bool, layers: int | None) -> None:
    """The script that is profiled and measured: nothing in it knows of a profile. It reports as `dynotune bench` asks."""
    import torch
    from datasets import Dataset
    from tests.tiny import tiny_tokenizer
    from transformers import AttentionInterface, AttentionMaskInterface, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    from benchmarks.peers.work import WORDS, adapter, model_of

    AttentionInterface.register("varlen", varlen)
    AttentionMaskInterface.register("varlen", lambda *args, **more: None)
    torch.manual_seed(17)
    row, rows = (256, 2) if tiny else (2048, 4)
    fewer = {} if layers is None else {"num_hidden_layers": layers}
    model = model_of("dry" if tiny else "qwen2.5-7b", attention, "float32" if tiny else "bfloat16", **fewer)
    draw = random.Random(0)
    lengths = [int(min(row, max(8, draw.lognormvariate(math.log(105), 0.7)))) for _ in range(1200 if tiny else 2500)]
    data = Dataset.from_list([{"input_ids": [draw.randrange(WORDS) for _ in range(n)]} for n in lengths])

    class Report(TrainerCallback):
        began = tokens = 0.0

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == WARM:
                self.began, self.tokens = self.now(), state.num_input_tokens_seen

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            seconds, tokens = self.now() - self.began, state.num_input_tokens_seen - self.tokens
            told = {"tokens": tokens, "seconds": seconds, "steps": state.global_step - WARM}
            if "DYNOTUNE_BENCH_REPORT" in os.environ:
                Path(os.environ["DYNOTUNE_BENCH_REPORT"]).write_text(json.dumps(told))

        def now(self) -> float:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            return time.perf_counter()

    with tempfile.TemporaryDirectory() as folder:
        trainer = SFTTrainer(
            model=model,
            args=SFTConfig(
                output_dir=folder, max_steps=STEPS, per_device_train_batch_size=rows, packing=True, max_length=row,
                learning_rate=1e-5, save_strategy="no", report_to="none", bf16=not tiny, use_cpu=tiny, disable_tqdm=True,
                gradient_checkpointing=False, logging_steps=10, include_num_input_tokens_seen="all", seed=17,
            ),
            train_dataset=data, processing_class=tiny_tokenizer(), peft_config=adapter(), callbacks=[Report()],
        )  # fmt: skip
        trainer.train()


def profiled(command: list[str], tiny: bool) -> dict[str, Any]:
    """What a profile says of one of the commands."""
    from dataclasses import replace

    import torch

    from dynotune.measure.calibration import ceilings_of
    from dynotune.profile.analysis.analyse import analyse
    from dynotune.profile.foreign.command import Options, profile
    from dynotune.profile.foreign.protocol import Asked
    from dynotune.speedups.machine import machine_of

    asked = Asked(steps=10, warm_up=WARM + 1)
    record = profile(Options(command, asked), lambda text: print(text, flush=True))
    device = torch.device("cpu" if tiny else "cuda")
    found = analyse(replace(record, ceilings=ceilings_of(device, machine_of(device).key)))
    return {
        "step_seconds": found.step_seconds,
        "bottleneck": found.bottleneck,
        "found": {one.name: {"sentence": one.sentence, "seconds": one.seconds} for one in found.found},
        "rows": {str(row.work): [row.seconds, row.floor] for row in found.rows},
        "notes": list(record.notes),
        "slowdown_of_profiler": found.profiler_slowdown,
    }


def measured(default: list[str], other: list[str], pairs: int, out: Path) -> dict[str, Any]:
    """The same two, in pairs of whole processes."""
    from rich.console import Console

    from dynotune.bench.foreign.command import Options, bench

    words = (*default, "::", *other)
    result, _ = bench(Options(words, pairs=pairs, most_pairs=pairs, out=out / "bench"), Console())
    (one,) = result.comparisons
    return json.loads(one.model_dump_json())


PARTS = ("sdpa", "varlen", "bench")


def concluded(found: dict[str, Any], tiny: bool) -> dict[str, Any]:
    """What the parts that are there say together."""
    profiles, comparison = found["profiles"], found.get("comparison")
    if set(PARTS[:2]) <= set(profiles):
        found["named"] = "dense-mask" in profiles["sdpa"]["found"] and "dense-mask" not in profiles["varlen"]["found"]
        ratio = comparison["ratio"]["estimate"] if comparison and comparison["ratio"] else None
        found["ok"] = found["named"] and comparison is not None and (tiny or ratio is not None)
        if found["named"] and ratio:
            step = profiles["sdpa"]["step_seconds"]
            saving = profiles["sdpa"]["found"]["dense-mask"]["seconds"]
            found |= {"predicted_saving": saving, "measured_saving": step - step / ratio}
            found["off_by"] = found["predicted_saving"] / found["measured_saving"] - 1
            found["ok"] = found["ok"] and (tiny or abs(found["off_by"]) <= WITHIN)
    return found


def main() -> int:
    from benchmarks.whole_file import write_json

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder of the JSON and the bench's files")
    parser.add_argument("--commit", default="", help="of the tree, where it is not a git checkout")
    parser.add_argument("--only", default=",".join(PARTS), help="parts of this call")
    parser.add_argument("--layers", type=int, help="of the model, all by default")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="a tiny model on the CPU")
    parser.add_argument("--train", choices=("sdpa", "varlen"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        train(args.train, args.tiny, args.layers)
        return 0
    if args.out is None or not set(args.only.split(",")) <= set(PARTS):
        parser.error(f"--out is needed, and --only takes {', '.join(PARTS)}")
    args.out.mkdir(parents=True, exist_ok=True)
    more = [*(["--tiny"] if args.tiny else []), *(["--layers", str(args.layers)] if args.layers else [])]
    commands = {
        name: [sys.executable, str(Path(__file__).resolve()), "--train", name, *more] for name in ("sdpa", "varlen")
    }
    path = args.out / "gpu_profile_trl.json"
    found: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]), "commit": args.commit, "machine": machine(args.tiny),
        "layers": args.layers, "versions": {p: metadata.version(p) for p in ("torch", "transformers", "trl")},
        "profiles": {}, "ok": False,
    }  # fmt: skip
    if path.is_file() and (before := json.loads(path.read_text())).get("layers") == args.layers:
        found |= {name: before[name] for name in ("profiles", "comparison") if name in before}
    for part in args.only.split(","):
        if part in found["profiles"] or (part == "bench" and "comparison" in found):
            continue
        began = time.perf_counter()
        if part == "bench":
            found["comparison"] = measured(commands["sdpa"], commands["varlen"], args.pairs, args.out)
        else:
            found["profiles"][part] = profiled(commands[part], args.tiny)
        found = concluded(found, args.tiny)
        write_json(path, found)
        print(f"{part}: {time.perf_counter() - began:.0f} s", flush=True)
    there = [*found["profiles"], *(["bench"] if "comparison" in found else [])]
    if "off_by" in found:
        print(f"predicted {found['predicted_saving']:.4f} s a step, measured {found['measured_saving']:.4f}")
    print(
        f"there: {', '.join(there)}; dense mask named where it is and only there: {found.get('named')}; ok: {found['ok']}"
    )
    return 0 if found["ok"] or set(there) < set(PARTS) else 1


def machine(tiny: bool) -> str:
    import torch

    return platform.processor() if tiny or not torch.cuda.is_available() else torch.cuda.get_device_name()


if __name__ == "__main__":
    sys.exit(main())
