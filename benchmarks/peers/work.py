"""What an arm works on, the same for all of them: documents in their order, tokenizer, model, adapter, first weights."""

import gzip
import json
import math
import random
from pathlib import Path
from typing import Any

from benchmarks import shapes
from benchmarks.peers.rows import Row

WORDS = 5000
"""Of the probe's vocabulary."""

SPARE = 24
"""Pairs more than the steps take: `max_length` leaves some without a label, in both trainers."""

SHAPES: dict[str, dict[str, Any]] = {
    **shapes.SHAPES,
    "dry": {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": WORDS + 3, "tie_word_embeddings": False, **shapes.QWEN,
    },
}  # fmt: skip
"""Those of the rows; `dry` is for rehearsals on a CPU."""

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def common(row: Row) -> dict[str, Any]:
    """Settings of all arms of a row: with clipping and logging, without shuffling and saving."""
    return {
        **row.content,
        "max_steps": row.steps,
        "logging_steps": row.window,
        "learning_rate": 5e-6 if row.pairs else 1e-5,
        "max_grad_norm": 1.0,
        "save_strategy": "no",
        "train_sampling_strategy": "sequential",
        "report_to": "none",
        "seed": 17,
        "bf16": True,
        "disable_tqdm": True,
    }


def examples_per_step(settings: dict[str, Any]) -> int:
    return int(settings["per_device_train_batch_size"] * settings.get("gradient_accumulation_steps", 1))


def tokenizer_of(row: Row, shared: Path | None) -> Any:
    """Of the probe one whose every word is a token; of the data sets Qwen's."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if not row.documents.startswith("probe"):
        return AutoTokenizer.from_pretrained(_folder(row, shared) / "tokenizers" / "qwen-152k")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {f"w{i}": i for i in range(WORDS)} | {"<pad>": WORDS, "<eos>": WORDS + 1, "<unk>": WORDS + 2}
    tokens = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokens.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokens, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def rows_of(row: Row, shared: Path | None, tokenizer: Any) -> list[dict[str, Any]]:
    """Documents or pairs, as many as the row's steps take. Raises `SystemExit` where a data set has too few."""
    examples = row.steps * examples_per_step(common(row))
    if row.documents in ("probe", "probe-129"):
        draw = random.Random(0)
        lengths = [_length(draw, 105) if row.documents == "probe" else 129 for _ in range(row.epoch)]
        return [{"input_ids": [draw.randrange(WORDS) for _ in range(n)]} for n in lengths]
    if row.documents == "probe-pairs":
        draw = random.Random(0)
        return [
            {"prompt": _text(draw, 100), "chosen": f" {_text(draw, 80)}", "rejected": f" {_text(draw, 80)}"}
            for _ in range(examples)
        ]
    take = _pair if row.pairs else _conversation
    wanted = examples + (SPARE if row.pairs else 0)
    name = "preference/preference_mix.jsonl.gz" if row.pairs else "sft/sft_mix.jsonl.gz"
    rows: list[dict[str, Any]] = []
    with gzip.open(_folder(row, shared) / "data" / name, "rt", encoding="utf-8") as source:
        for line in source:
            if (one := take(json.loads(line), tokenizer)) is not None:
                rows.append(one)
            if len(rows) == wanted:
                return rows
    raise SystemExit(f"{name} has {len(rows):,} rows that serve, {wanted:,} are needed")


def _folder(row: Row, shared: Path | None) -> Path:
    if shared is None:
        raise SystemExit(f"{row.holds} need --shared: the folder with `data` and `tokenizers`")
    return shared


def _length(draw: random.Random, median: int) -> int:
    return int(min(2000, max(8, draw.lognormvariate(math.log(median), 0.7))))


def _text(draw: random.Random, median: int) -> str:
    return " ".join(f"w{draw.randrange(WORDS)}" for _ in range(_length(draw, median)))


def is_taken(row: dict[str, Any]) -> bool:
    """At most 4,096 tokens, and no tools: Qwen's template would drop them in one of the trainers and not in the other."""
    return row["n_tokens"] <= 4096 and "tools" not in row and not any("tool_calls" in m for m in row["messages"])


def _conversation(row: dict[str, Any], tokenizer: Any) -> dict[str, Any] | None:
    if not is_taken(row):
        return None
    return {"input_ids": tokenizer.apply_chat_template(row["messages"], return_dict=True)["input_ids"]}


def _pair(row: dict[str, Any], tokenizer: Any) -> dict[str, Any] | None:
    return None if "tools" in row else {key: row[key] for key in ("prompt", "chosen", "rejected")}


def model_of(shape: str, attention: str, weights: str, **changes: Any) -> Any:
    """Random weights by one seed, on the device where there is one. weights: their dtype."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(17)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        return AutoModelForCausalLM.from_config(
            shapes.config_of(SHAPES[shape], **changes),
            dtype=getattr(torch, weights),
            attn_implementation=attention,
        )


def adapter() -> Any:
    from peft import LoraConfig

    return LoraConfig(r=32, lora_alpha=64, lora_dropout=0.0, target_modules=TARGETS, task_type="CAUSAL_LM")


def same_start() -> Any:
    """A callback that gives all arms' adapters the same first matrices; without adapters it does nothing."""
    import torch
    from transformers import TrainerCallback

    class SameStart(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            generator: Any = None
            with torch.no_grad():
                for name, p in sorted(model.named_parameters()):
                    if "lora_A" in name and p.requires_grad:
                        generator = generator or torch.Generator(device=p.device).manual_seed(11)
                        drawn = torch.rand(p.shape, generator=generator, device=p.device)
                        p.copy_((2 * drawn - 1) / p.shape[1] ** 0.5)

    return SameStart()
