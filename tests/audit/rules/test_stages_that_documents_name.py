"""Promise: the stage of ZeRO that a document names for a training is held against the one that runs."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

LF = (
    "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\nstage: sft\ndo_train: true\nfinetuning_type: full\ndataset: a\n"
    "template: qwen\ndeepspeed: ds.json\ncutoff_len: 2048\noutput_dir: o\nbf16: true\n"
)
DS = '{{"zero_optimization": {{"stage": {}}}, "bf16": {{"enabled": "auto"}}, "train_micro_batch_size_per_gpu": "auto"}}'


@pytest.mark.parametrize(
    ("readme", "stage", "found"),
    [
        ("Full fine-tuning with ZeRO-3 on 8 x A100.", 2, 1),
        ("We train under ZeRO stage 2.", 3, 1),
        ("Full fine-tuning with ZeRO-2 on 8 x A100.", 2, 0),
        ("ZeRO-3 was slower.", 2, 0),
        ("Trained with ZeRO-2. ZeRO-3 is not needed.", 2, 0),
        ("Larger models need ZeRO-3.", 2, 0),
        ("We tried training with ZeRO-3 first.", 2, 0),
    ],
)
def test_one_stage(tmp_path: Path, readme: str, stage: int, found: int) -> None:
    files = {"a.yaml": LF, "ds.json": DS.format(stage), "run.sh": "FORCE_TORCHRUN=1 llamafactory-cli train a.yaml\n"}
    said = audited(tmp_path / "a", {**files, "README.md": f"# x\n\n{readme}\n"}, select=("CFG011",)).findings
    assert len(said) == found
    two = {**files, "ds3.json": DS.format(3), "ds2.json": DS.format(2), "README.md": f"# x\n\n{readme}\n"}
    assert not audited(tmp_path / "b", two, select=("CFG011",)).findings


SPEED = """import time
from transformers import TrainerCallback
class Speed(TrainerCallback):
    def on_step_begin(self, args, state, control, **more):
        self.begun = time.time()
    def on_step_end(self, args, state, control, **more):
        rows = args.per_device_train_batch_size * args.gradient_accumulation_steps
        print({"tokens_per_sec": args.per_device_train_batch_size * %s / (time.time() - self.begun)})
"""
TRAIN = """from callback import Speed
from trl import SFTConfig, SFTTrainer
args = SFTConfig(output_dir="o", max_length=2048, packing=False, seed=1, bf16=True)
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=args, train_dataset=rows, callbacks=[Speed()]).train()
"""


@pytest.mark.parametrize(("factor", "found"), [("2048", 1), ("4", 0)])
def test_a_callback_has_the_limit_as_a_number(tmp_path: Path, factor: str, found: int) -> None:
    files = {"callback.py": SPEED % factor, "train.py": TRAIN}
    assert len(audited(tmp_path / "a", files, select=("MSR001",)).findings) == found
