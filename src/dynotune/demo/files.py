"""What the demo writes before it trains: a model's shape, a tokenizer, data and two configurations, all ordinary files.

Nothing is downloaded, and nothing is special about them: `dynotune sft --config sft.yaml` trains the same model again, and
`dynotune dpo --config dpo.yaml` moves it again.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dynotune.demo.task import LETTERS, VERBS, Item

SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
}
"""Two layers suffice for tasks that only move letters."""

PAD, END, USER, ASSISTANT = "<pad>", "<end>", "<user>", "<assistant>"

TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'assistant' %}"
    "<assistant>{% generation %}{{ message.content }}<end>{% endgeneration %}"
    "{% else %}<user>{{ message.content }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
"""The generation block marks what `assistant_only_loss` trains: the answer and its end."""

CONFIG = """\
# The demo's configuration. Train again with:  dynotune sft --config {name} --output_dir again
# A TRL SFT configuration has the same keys.
model_name_or_path: {model}
random_weights: true          # {model} holds a shape and a tokenizer, no weights
dataset_name: {train}
eval_dataset_name: {held_out}
assistant_only_loss: true     # learn the answers, not the questions
output_dir: {run}
overwrite_output_dir: true
run_name: demo

num_train_epochs: 3
per_device_train_batch_size: 16
learning_rate: 3.0e-3         # a model this small takes a hundred times what a 7B model takes
lr_scheduler_type: cosine
warmup_steps: 50
adam_beta2: 0.99
seed: 0

logging_steps: 30
eval_strategy: steps
eval_steps: 135
save_strategy: "no"
use_cpu: true
env: {{OMP_NUM_THREADS: "1"}}  # matrices this small gain nothing from more threads, and lose much on busy cores
"""

DPO_CONFIG = """\
# The demo's second configuration. Train again with:  dynotune dpo --config {name} --output_dir again
# A TRL DPO configuration has the same keys.
model_name_or_path: {model}   # what sft.yaml has trained: the start, and the reference
dataset_name: {pairs}
eval_dataset_name: {held_out}
loss_type: [sigmoid, sft]     # DPO, and an anchor: without it the rejected answers fall, and the chosen ones with them
loss_weights: [1.0, 1.0]
beta: 0.1
output_dir: {run}
overwrite_output_dir: true
run_name: demo-dpo

num_train_epochs: 1
per_device_train_batch_size: 16
learning_rate: 2.0e-3         # a model this small takes a thousand times what a 7B model takes
adam_beta2: 0.99
seed: 0

logging_steps: 20
eval_strategy: steps
eval_steps: 50
save_strategy: "no"
use_cpu: true
env: {{OMP_NUM_THREADS: "1"}}
"""


def write_files(folder: Path, train: Iterable[Item], held_out: Iterable[Item]) -> Path:
    """Write model/, the conversations and sft.yaml into `folder`; return the configuration's path."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_model(folder / "model")
    _write_rows(folder / "train.jsonl", (item.row() for item in train))
    _write_rows(folder / "held_out.jsonl", (item.row() for item in held_out))
    places = {"model": "model", "train": "train.jsonl", "held_out": "held_out.jsonl", "run": "run"}
    return _write_config(folder / "sft.yaml", CONFIG, places)


def write_pairs(folder: Path, train: Iterable[Item], held_out: Iterable[Item]) -> Path:
    """Write the pairs and dpo.yaml into `folder`, beside what sft.yaml trains; return the configuration's path."""
    _write_rows(folder / "pairs.jsonl", (item.pair() for item in train if item.tells_apart))
    _write_rows(folder / "held_out_pairs.jsonl", (item.pair() for item in held_out if item.tells_apart))
    places = {"model": "run/model", "pairs": "pairs.jsonl", "held_out": "held_out_pairs.jsonl", "run": "run-dpo"}
    return _write_config(folder / "dpo.yaml", DPO_CONFIG, places)


def _write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _write_config(path: Path, template: str, places: dict[str, str]) -> Path:
    quoted = {key: json.dumps(str(path.parent / value)) for key, value in places.items()}
    path.write_text(template.format(name=path, **quoted), encoding="utf-8")
    return path


def _write_model(folder: Path) -> None:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, PreTrainedTokenizerFast

    special = [PAD, END, USER, ASSISTANT]
    vocabulary = {token: index for index, token in enumerate([*special, *VERBS, " ", *LETTERS])}
    letters = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    letters.pre_tokenizer = pre_tokenizers.Split(Regex("|".join([*VERBS, "."])), behavior="isolated")
    letters.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=letters, pad_token=PAD, eos_token=END, additional_special_tokens=[USER, ASSISTANT]
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    LlamaConfig(
        vocab_size=len(vocabulary),
        bos_token_id=None,
        eos_token_id=vocabulary[END],
        pad_token_id=vocabulary[PAD],
        **SHAPE,
    ).save_pretrained(folder)
