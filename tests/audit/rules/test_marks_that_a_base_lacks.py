"""Promise: turns written for a base model with marks that its vocabulary lacks are found, in a configuration as in a script;
a base model that has them, tokens that are added, and another's tokenizer are right."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

AXOLOTL = (
    "base_model: {}\nadapter: lora\nlora_r: 8\ndatasets:\n  - path: d.jsonl\n    type: chat_template\nchat_template: {}\n"
    "sequence_len: 2048\nmicro_batch_size: 1\noutput_dir: out\n"
)
FACTORY = "model_name_or_path: {}\nstage: sft\nfinetuning_type: lora\ndataset: a\ntemplate: {}\noutput_dir: out\n"
PADS = 'special_tokens:\n  pad_token: "<|finetune_right_pad_id|>"\n'
LLAMA, MISTRAL = "meta-llama/Llama-3.1-8B", "mistralai/Mistral-7B-v0.1"


def says(tmp_path: Path, files: dict[str, str]) -> bool:
    found = audited(tmp_path, files, select=("CFG015",)).findings
    return any("no tokens of the base model" in one.message for one in found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (AXOLOTL.format(LLAMA, "chatml") + PADS, True),
        (AXOLOTL.format(MISTRAL, "chatml"), True),
        (AXOLOTL.format(MISTRAL, "llama3"), True),
        (AXOLOTL.format(MISTRAL, "qwen_25"), True),
        (
            AXOLOTL.format(LLAMA, "llama3").replace("chat_template\n", "chat_template\n    chat_template: chatml\n", 1),
            True,
        ),
        (
            AXOLOTL.format(LLAMA, "llama3").replace("chat_template\n", "chat_template\n    chat_template: llama3\n", 1),
            False,
        ),
        (FACTORY.format(LLAMA, "chatml"), True),
        (FACTORY.format(MISTRAL, "qwen"), True),
        (AXOLOTL.format(LLAMA, "llama3") + PADS, False),
        (AXOLOTL.format("Qwen/Qwen2.5-7B", "chatml"), False),
        (AXOLOTL.format("somebody/Llama-3.1-8B-chatml", "chatml"), False),
        (
            AXOLOTL.format(LLAMA, "chatml") + 'special_tokens:\n  eos_token: "<|im_end|>"\ntokens: ["<|im_start|>"]\n',
            False,
        ),
        (AXOLOTL.format(LLAMA, "chatml") + "tokenizer_config: somebody/chatml-tokenizer\n", False),
        (FACTORY.format(LLAMA, "chatml") + "resize_vocab: true\n", False),
        (FACTORY.format(LLAMA, "default"), False),
    ],
)
def test_a_template_of_a_configuration(tmp_path: Path, text: str, found: bool) -> None:
    assert says(tmp_path, {"a.yaml": text}) is found


def test_a_token_to_pad_with_is_no_mark(tmp_path: Path) -> None:
    """An instructed model with another's template, beside a `pad_token`."""
    text = AXOLOTL.format("meta-llama/Llama-3.1-8B-Instruct", "chatml") + PADS
    assert [one.code for one in audited(tmp_path, {"a.yaml": text}, select=("CFG015",)).findings] == ["CFG015"]


SCRIPT = """from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

tok = AutoTokenizer.from_pretrained("{tokenizer}")
{made}
model = AutoModelForCausalLM.from_pretrained("{model}")
SFTTrainer(model=model, args=SFTConfig("out"), train_dataset=rows, processing_class=tok).train()
"""
JINJA = (
    'tok.chat_template = "{% for m in messages %}<|im_start|>{{ m.role }}\\n{{ m.content }}<|im_end|>\\n{% endfor %}"'
)
BY_HAND = (
    'rows = rows.map(lambda r: {"text": f"<|im_start|>user\\n{r}<|im_end|>\\n<|im_start|>assistant\\n{r}<|im_end|>"})'
)


@pytest.mark.parametrize(
    ("made", "tokenizer", "model", "found"),
    [
        (JINJA, MISTRAL, MISTRAL, True),
        (BY_HAND, MISTRAL, MISTRAL, False),
        (JINJA, "Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B", False),
        (JINJA.replace("{% endfor %}", "{{ eos_token }}{% endfor %}"), MISTRAL, MISTRAL, False),
        (f'{JINJA}\ntok.eos_token = "<|im_end|>"', MISTRAL, MISTRAL, False),
        (JINJA, "somebody/chatml-tokenizer", MISTRAL, False),
        (f'{JINJA}\ntok.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)', MISTRAL, MISTRAL, False),
        ('text = text.replace("<|im_start|>", "")', MISTRAL, MISTRAL, False),
    ],
)
def test_a_template_of_a_script(tmp_path: Path, made: str, tokenizer: str, model: str, found: bool) -> None:
    text = SCRIPT.replace("{made}", made).replace("{tokenizer}", tokenizer).replace("{model}", model)
    assert says(tmp_path, {"train.py": text}) is found
