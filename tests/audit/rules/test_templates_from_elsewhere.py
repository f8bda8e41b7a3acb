"""Promise: another family's template is found from wherever it comes; the family's own is not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

INST = "{% for m in messages %}[INST] {{ m['content'] }} [/INST]{% endfor %}"
CHATML = "{% for m in messages %}{{ '<|im_start|>' + m.role + m.content + '<|im_end|>' }}{% endfor %}"
TRAIN = """import os
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer
{head}
tok = AutoTokenizer.from_pretrained("{model}")
tok.chat_template = {template}
SFTTrainer(AutoModelForCausalLM.from_pretrained("{model}"), args=SFTConfig("out"), processing_class=tok).train()
"""
QWEN, LLAMA, MISTRAL = (
    "Qwen/Qwen2.5-1.5B-Instruct", "meta-llama/Llama-3.2-3B-Instruct", "mistralai/Mistral-7B-Instruct-v0.3",
)  # fmt: skip
JINJA = 'open("templates/chat.jinja").read()'
DONOR = 'AutoTokenizer.from_pretrained("{}").chat_template'
TRL = "model_name_or_path: {}\nchat_template_path: templates/chat.jinja\ndataset_name: a/b\noutput_dir: out\n"
BY_HAND = """from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
from prompts import prompt_of
tok = AutoTokenizer.from_pretrained("{model}")
rows = rows.map(lambda row: tok(prompt_of(row["q"]) + row["a"]))
Trainer(AutoModelForCausalLM.from_pretrained("{model}"), TrainingArguments("out"), train_dataset=rows).train()
"""
COMPOSE = """services:
  train:
    environment:
      MODEL: mistralai/Mistral-7B-Instruct-v0.3
      TEMPLATE_FROM: {}
    command: sh -c "pip install -q trl && accelerate launch train.py"
"""
BY_ENVIRONMENT = TRAIN.format(head="", model="X", template="Y").replace('"X"', 'os.environ["MODEL"]').replace(
    "Y", 'AutoTokenizer.from_pretrained(os.environ["TEMPLATE_FROM"]).chat_template'
)  # fmt: skip


def a_script(model: str, template: str, head: str = "") -> str:
    return TRAIN.format(model=model, template=template, head=head)


@pytest.mark.parametrize(
    "files",
    [
        {
            "train.py": a_script(QWEN, "CHAT", "from templates import CHAT"),
            "templates.py": f'CHAT = (\n    "{INST[:30]}"\n    "{INST[30:]}"\n)\n',
        },
        {"train.py": a_script(QWEN, "t.CHAT", "import templates as t"), "templates.py": f'CHAT = "{INST}"\n'},
        {"train.py": a_script(LLAMA, JINJA), "templates/chat.jinja": CHATML},
        {"train.py": a_script(MISTRAL, DONOR.format(QWEN))},
        {"train.py": a_script(MISTRAL, "donor.chat_template", f'donor = AutoTokenizer.from_pretrained("{QWEN}")')},
        {"sft.yaml": TRL.format(LLAMA), "templates/chat.jinja": CHATML, "run.sh": "trl sft --config sft.yaml\n"},
        {
            "train.py": BY_HAND.format(model=LLAMA),
            "prompts.py": 'def prompt_of(q):\n    return f"<|user|>\\n{q}<|end|>"\n',
        },
        {"train.py": BY_HAND.format(model=QWEN), "prompts.py": 'def prompt_of(q):\n    return f"[INST] {q} [/INST]"\n'},
        {"train.py": BY_ENVIRONMENT, "docker-compose.yml": COMPOSE.format(QWEN)},
    ],
)
def test_another_familys_template(tmp_path: Path, files: dict[str, str]) -> None:
    assert len(audited(tmp_path, files, select=("CFG015",)).findings) == 1


@pytest.mark.parametrize(
    "files",
    [
        {"train.py": a_script(QWEN, "CHAT", "from templates import CHAT"), "templates.py": f'CHAT = "{CHATML}"\n'},
        {"train.py": a_script(QWEN, JINJA), "templates/chat.jinja": CHATML},
        {"train.py": a_script(QWEN, DONOR.format("Qwen/Qwen2.5-7B-Instruct"))},
        {"train.py": a_script("Qwen/Qwen2.5-7B", DONOR.format("mistralai/Mistral-7B-Instruct-v0.3"))},
        {"train.py": a_script(LLAMA, JINJA) + 'tok.add_special_tokens({"eos_token": "<|im_end|>"})\n',
         "templates/chat.jinja": CHATML},
        {"sft.yaml": TRL.format(QWEN), "templates/chat.jinja": CHATML, "run.sh": "trl sft --config sft.yaml\n"},
        {"train.py": BY_HAND.format(model="microsoft/Phi-3-mini-4k-instruct"),
         "prompts.py": 'def prompt_of(q):\n    return f"<|user|>\\n{q}<|end|>"\n'},
        {"train.py": BY_HAND.format(model=MISTRAL), "prompts.py": 'def prompt_of(q):\n    return f"[INST] {q}"\n'},
        {"train.py": BY_ENVIRONMENT, "docker-compose.yml": COMPOSE.format("mistralai/Mistral-7B-Instruct-v0.2")},
    ],
)  # fmt: skip
def test_the_familys_own_template(tmp_path: Path, files: dict[str, str]) -> None:
    assert not audited(tmp_path, files, select=("CFG015",)).findings
