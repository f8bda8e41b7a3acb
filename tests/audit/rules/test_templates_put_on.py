"""Promise: a template that a script puts on a tokenizer is another family's, or nothing is said of it."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

UNSLOTH = """from trl import SFTConfig, SFTTrainer
from unsloth import FastLanguageModel
from unsloth.chat_templates import get_chat_template

MODEL = "{model}"
TEMPLATE = "{template}"
model, tokenizer = FastLanguageModel.from_pretrained(model_name=MODEL, max_seq_length=2048, load_in_4bit=True)
model = FastLanguageModel.get_peft_model(model, r=16, lora_alpha=16, random_state=1)
{more}
tokenizer = get_chat_template(tokenizer, {given})
rows = rows.map(lambda row: {{"text": tokenizer.apply_chat_template(row["messages"], tokenize=False)}})
SFTTrainer(model=model, args=SFTConfig(output_dir="o", seed=1), train_dataset=rows).train()
"""
QWEN = "unsloth/Qwen2.5-7B-Instruct-bnb-4bit"
LLAMA = "unsloth/Meta-Llama-3.1-8B-Instruct-unsloth-bnb-4bit"


@pytest.mark.parametrize(
    ("model", "template", "given", "found"),
    [
        (QWEN, "llama-3.1", "chat_template=TEMPLATE", 1),
        (QWEN, "gemma-3", 'chat_template="gemma-3"', 1),
        (QWEN, "llama-3", "TEMPLATE", 1),
        (LLAMA, "qwen-2.5", "chat_template=TEMPLATE", 1),
        ("unsloth/gemma-2-9b-it-bnb-4bit", "llama-3.1", "chat_template=TEMPLATE", 1),
        (QWEN, "qwen-2.5", "chat_template=TEMPLATE", 0),
        (QWEN, "chatml", "chat_template=TEMPLATE", 0),
        (LLAMA, "llama-3.1", "chat_template=TEMPLATE", 0),
        (LLAMA, "chatml", "chat_template=TEMPLATE", 0),
        (LLAMA, "alpaca", "chat_template=TEMPLATE", 0),
        ("unsloth/Meta-Llama-3.1-8B-bnb-4bit", "qwen-2.5", "chat_template=TEMPLATE", 0),
        ("someone/Qwen2.5-7B-Instruct-llama-format", "llama-3.1", "chat_template=TEMPLATE", 0),
    ],
)
def test_unsloth_template_of_another_family(tmp_path: Path, model: str, template: str, given: str, found: int) -> None:
    train = UNSLOTH.format(model=model, template=template, given=given, more="")
    assert len(audited(tmp_path / "a", {"train.py": train}, select=("CFG015",)).findings) == found


def test_tokens_that_are_added_are_known(tmp_path: Path) -> None:
    more = "tokenizer.add_special_tokens({'additional_special_tokens': ['<|start_header_id|>']})"
    train = UNSLOTH.format(model=QWEN, template="llama-3.1", given="chat_template=TEMPLATE", more=more)
    assert not audited(tmp_path / "a", {"train.py": train}, select=("CFG015",)).findings


TEXT = """from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

TEMPLATE = "{text}"
tok = AutoTokenizer.from_pretrained("{model}")
tok.chat_template = {given}
model = AutoModelForCausalLM.from_pretrained("{model}")
rows = rows.map(lambda row: tok.apply_chat_template(row["messages"], return_dict=True))
Trainer(model=model, args=TrainingArguments("o", seed=1), train_dataset=rows).train()
"""
OF_LLAMA = (
    "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>{{ m.content }}<|eot_id|>{% endfor %}"
)
OF_CHATML = "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endfor %}"


@pytest.mark.parametrize(
    ("model", "text", "given", "found"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", OF_LLAMA, "TEMPLATE", 1),
        ("meta-llama/Llama-3.1-8B-Instruct", OF_CHATML, "TEMPLATE", 1),
        ("Qwen/Qwen2.5-Coder-7B-Instruct", OF_LLAMA, repr(OF_LLAMA), 1),
        ("Qwen/Qwen2.5-7B-Instruct", OF_CHATML, "TEMPLATE", 0),
        ("Qwen/Qwen2.5-7B-Instruct", "{% for m in messages %}{{ m.content }}{% endfor %}", "TEMPLATE", 0),
        ("Qwen/Qwen2.5-7B-Instruct", OF_LLAMA, "other.chat_template", 0),
    ],
)
def test_text_of_another_family(tmp_path: Path, model: str, text: str, given: str, found: int) -> None:
    train = TEXT.format(model=model, text=text, given=given)
    assert len(audited(tmp_path / "a", {"train.py": train}, select=("CFG015",)).findings) == found
