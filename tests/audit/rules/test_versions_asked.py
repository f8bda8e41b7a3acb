"""Promise: versions that a project asks for are held against each other and against the arguments that its calls give."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("torch==2.1.2\nnumpy==2.1.0\n", True),
        ("torch==2.3.1\nnumpy==2.1.0\n", False),
        ("torch==2.1.2\nnumpy==1.26.4\n", False),
        ("transformers==4.50.0\naccelerate==0.20.3\n", True),
        ("transformers==4.50.0\naccelerate==0.34.2\n", False),
        ("transformers==5.2.0\npeft==0.16.0\n", True),
        ("transformers==5.2.0\npeft==0.15.2\n", False),
        ("transformers==5\nhuggingface_hub==1.3.0\n", False),
        ("transformers==4.*\ntrl==1.0.0\n", False),
        ("trl==1.16.0\naccelerate==1.4.0\n", True),
        ("trl==1.15.0\naccelerate==1.4.0\n", False),
        ("llamafactory==0.9.5\ntransformers==5.6.0\n", False),
        ("llamafactory==0.9.5\ntransformers==5.6.2\n", True),
        ("llamafactory==0.9.3\ntransformers==4.51.3\ntrl==0.9.6\npeft==0.15.2\n", False),
        ("llamafactory==0.9.3\ntransformers==4.52.0\n", True),
        ("llamafactory==0.9.2\ntransformers==4.47.1\n", True),
        ("llamafactory==0.9.3\ndeepspeed==0.17.5\n", False),
        ("llamafactory[deepspeed]==0.9.3\ndeepspeed==0.17.5\n", True),
        ("llamafactory==0.9.6\ntransformers==4.47.1\n", False),
        ("axolotl==0.12.2\ntrl==0.19.1\n", True),
        ("axolotl==0.12.2\ntrl==0.21.0\ntransformers==4.55.2\ntorch==2.8.0+cu128\n", False),
        ("axolotl==0.10.0\ntrl==0.1\n", False),
        ("transformers==4.46.0\npeft==0.13.2\n", False),
        ("transformers==4.44.2\ntokenizers==0.21.0\n", True),
        ("transformers==4.44.2\ntokenizers==0.19.1\n", False),
        ("transformers==4.46.3\nhuggingface_hub==1.2.0\n", True),
        ("transformers==4.10.0\nhuggingface_hub==1.2.0\n", False),
        ("torch==2.5.1\ntorchvision==0.19.1\n", True),
        ("torch==2.5.1\ntorchvision==0.20.1\ntorchaudio==2.5.1\n", False),
        ("torch==2.5.1\ntorchaudio==2.4.0\n", True),
        ("torch==2.11.0\ntorchvision==0.26.0\n", False),
        ("torch==2.1.2\nnumpy>=1.26\n", False),
    ],
)
def test_pairs_of_pins(tmp_path: Path, asked: str, found: bool) -> None:
    findings = audited(tmp_path, {"requirements.txt": asked, "a.py": "import torch\n"}, select=("ENV007",)).findings
    assert bool(findings) is found


@pytest.mark.parametrize(
    ("configuration", "asked", "found"),
    [
        ("deepspeed: ds.json\n", "0.17.5", True),
        ("deepspeed: ds.json\n", "0.16.9", False),
        ("bf16: true\n", "0.17.5", False),
    ],
)
def test_a_package_that_only_some_runs_use(tmp_path: Path, configuration: str, asked: str, found: bool) -> None:
    sft = "stage: sft\nmodel_name_or_path: a/b\ndataset: d\ntemplate: qwen\nfinetuning_type: lora\ncutoff_len: 512\n"
    files = {"sft.yaml": sft + configuration, "requirements.txt": f"llamafactory==0.9.3\ndeepspeed=={asked}\n"}
    assert bool(audited(tmp_path, files, select=("ENV007",)).findings) is found


@pytest.mark.parametrize(("trainer", "found"), [("ORPO", True), ("KTO", True), ("SFT", False)])
def test_releases_that_break_training_on_pairs(tmp_path: Path, trainer: str, found: bool) -> None:
    text = f"from trl import {trainer}Config, {trainer}Trainer\n{trainer}Trainer('a/b', args={trainer}Config('o')).train()\n"
    files = {"train.py": text, "requirements.txt": "trl==0.11.4\ntransformers==4.46.3\n"}
    assert bool(audited(tmp_path, files, select=("ENV007",)).findings) is found


TRL = (
    "from trl import SFTConfig, SFTTrainer\nclass Mine(SFTTrainer):\n    def %s(self, *args, **more):\n        ...\n"
    "def made(tok):\n    return Mine(model='a/b', args=SFTConfig(output_dir='o'), train_dataset=d, %s=tok)\n"
)
HF = (
    "from transformers import Trainer, TrainingArguments\n"
    "Trainer(model=m, args=TrainingArguments(output_dir='o'), train_dataset=d, %s=tok)\n"
)


@pytest.mark.parametrize(
    ("text", "asked", "found"),
    [
        (TRL % ("log", "tokenizer"), "", True),
        (TRL % ("log", "processing_class"), "", False),
        (TRL % ("__init__", "tokenizer"), "", False),
        (HF % "tokenizer", "", True),
        (HF % "tokenizer", "transformers==4.44.0\n", False),
        (HF % "processing_class", "transformers==4.44.0\n", True),
        (HF % "processing_class", "transformers==5.2.0\n", False),
        (TRL % ("log", "processing_class"), "trl==0.11.4\ntransformers==4.45.2\n", True),
        (TRL % ("log", "tokenizer"), "trl==0.16.0\n", True),
        (TRL % ("log", "tokenizer"), "trl==0.15.2\n", False),
        (TRL % ("log", "tokenizer"), "trl==0.11.4\ntransformers==4.45.2\n", False),
    ],
)
def test_arguments_that_a_release_does_not_take(tmp_path: Path, text: str, asked: str, found: bool) -> None:
    files = {"train.py": text, **({"requirements.txt": asked} if asked else {})}
    findings = audited(tmp_path, files, select=("CFG001", "CFG002", "CFG002")).findings
    assert [one.place.file for one in findings] == (["train.py"] if found else [])
