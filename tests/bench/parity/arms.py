"""Arms of a tiny model on tiny data, in files as a process of its own would read them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from dynotune.bench.asking.arms import Arm
from dynotune.bench.parity.asking import in_this_process
from dynotune.bench.parity.gate import check
from dynotune.config.dpo import DPOConfig
from dynotune.config.sft import SFTConfig
from dynotune.results.result import Parity
from tests.tiny import chats, sentences, tiny_model, tiny_tokenizer

LORA: dict[str, Any] = {"use_peft": True, "lora_r": 4, "lora_target_modules": "all-linear"}


@cache
def stage(folder: Path) -> dict[str, Any]:
    """Files of a model and of data, and the keys that name them."""
    tiny_model().save_pretrained(folder / "model")
    tiny_tokenizer().save_pretrained(folder / "model")
    texts = sentences(200, seed=4)
    pairs = [
        {"prompt": f"{next(texts)} {next(texts)}", "chosen": f" {next(texts)}", "rejected": f" {next(texts)}"}
        for _ in range(24)
    ]
    for name, rows in (("chats", [*chats(40), one_token()]), ("pairs", pairs)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"model_name_or_path": str(folder / "model"), "use_cpu": True, "token_cache": "off", "disable_tqdm": True}


def one_token() -> dict[str, Any]:
    """A conversation whose answer is its end token."""
    return {"messages": [{"role": "user", "content": "Two plus two?"}, {"role": "assistant", "content": ""}]}


def sft(folder: Path, name: str, **settings: Any) -> Arm:
    data = {"dataset_name": str(folder / "chats.jsonl"), "assistant_only_loss": True}
    return Arm(name, SFTConfig(**{**stage(folder), **data, **settings}))


def dpo(folder: Path, name: str, **settings: Any) -> Arm:
    return Arm(name, DPOConfig(**{**stage(folder), "dataset_name": str(folder / "pairs.jsonl"), **settings}))


def checked(first: Arm, other: Arm, folder: Path, **more: Any) -> Parity:
    """By the gate, with both arms in this process."""
    return check(first, other, folder, say=lambda line: None, ask=in_this_process, **more)
