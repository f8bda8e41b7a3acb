"""Promise: arguments that a trainer's call no longer takes are found, and those that it takes are not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited
from tests.audit.rules.test_cfg import said

CALL = """
from transformers import AutoTokenizer, TrainingArguments
from trl import SFTConfig, SFTTrainer
tok = AutoTokenizer.from_pretrained("m")
trainer = SFTTrainer("m", args=SFTConfig(output_dir="o"), train_dataset=rows, {})
"""


def test_arguments_that_a_trainer_itself_took_once(tmp_path: Path) -> None:
    (renamed,) = said(tmp_path / "a", "CFG002", {"t.py": CALL.format("tokenizer=tok")})
    assert renamed.remedy.changes[0].to == "processing_class"
    text = CALL.format('max_seq_length=1024, dataset_text_field="text"')
    gone = said(tmp_path / "b", "CFG002", {"t.py": text})
    assert [finding.place.key for finding in gone] == ["max_seq_length", "dataset_text_field"]
    assert not any(finding.remedy.changes for finding in gone)


@pytest.mark.parametrize(
    "files",
    [
        {"t.py": CALL.format("processing_class=tok, formatting_func=shown, peft_config=lora")},
        {"t.py": CALL.format("tokenizer=tok, max_seq_length=1024"), "requirements.txt": "trl==0.11.4\n"},
        {"t.py": CALL.format("tokenizer=tok").replace("from trl import SFTConfig, SFTTrainer", "from trl import SFTConfig")
            .replace("trainer =", "from trl import SFTTrainer as T\n"
            "class SFTTrainer(T):\n    def __init__(self, **k):\n        ...\ntrainer =")},
        {"t.py": "import unsloth\n" + CALL.format("tokenizer=tok, max_seq_length=1024")},
    ],
)  # fmt: skip
def test_arguments_that_a_trainer_takes(files: dict[str, str], tmp_path: Path) -> None:
    for code in ("CFG002", "CFG002"):
        assert not said(tmp_path / code, code, files)


_OF_A_CLASS = (
    "from trl import {0}Config, {0}Trainer\n{1}{0}Trainer(model='a/b', args={2}, train_dataset=rows).train()\n"
)


@pytest.mark.parametrize(
    ("trainer", "before", "made", "fires"),
    [
        ("Reward", "", "RewardConfig('o', max_prompt_length=512)", True),
        ("Reward", "more = {'max_length': 512, 'beta': 0.1}\n", "RewardConfig('o', **more)", True),
        ("SFT", "", "SFTConfig('o', precompute_ref_log_probs=True)", True),
        ("SFT", "args = SFTConfig(output_dir='o', beta=0.1)\n", "args", True),
        ("DPO", "", "DPOConfig('o', max_prompt_length=512, beta=0.1)", False),
        ("KTO", "", "KTOConfig('o', max_prompt_length=512, beta=0.1)", False),
        ("Reward", "", "RewardConfig('o', max_length=512, center_rewards_coefficient=0.01)", False),
    ],
)
def test_keys_of_another_class_under_any_pin(tmp_path: Path, trainer: str, before: str, made: str, fires: bool) -> None:
    text = _OF_A_CLASS.format(trainer, before, made)
    files = {"train.py": text, "requirements.txt": "trl==0.19.1\n"}
    found = audited(tmp_path, files, select=("CFG001",)).findings
    assert bool(found) is fires
    assert all("DPOConfig" in one.message for one in found)
