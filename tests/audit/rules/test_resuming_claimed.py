"""Promise: a run that is said to go on by itself, and begins anew, is found; one that goes on, or is told how to, is not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

AXOLOTL = (
    "base_model: Qwen/Qwen2.5-0.5B\ndatasets: [{path: x, type: alpaca}]\nmicro_batch_size: 2\nsequence_len: 2048\n"
    "output_dir: out\n"
)
FACTORY = (
    "stage: sft\ndo_train: true\nmodel_name_or_path: Qwen/Qwen2.5-0.5B\ndataset: d\ntemplate: qwen\n"
    "finetuning_type: lora\noutput_dir: out\n"
)
SCRIPT = (
    "from transformers import Trainer, TrainingArguments\n"
    "args = TrainingArguments(output_dir='out', resume_from_checkpoint={})\n"
    "Trainer(model=model, args=args, train_dataset=rows).train()\n"
)
SAYS = "# x\n\nThe job resumes by itself after a preemption.\n"


@pytest.mark.parametrize(
    "files",
    [
        {"a.yml": f"{AXOLOTL}# picks up after the Sunday restart by itself\nauto_resume_from_checkpoints: false\n"},
        {"a.yml": f"{AXOLOTL}# continues where it left off\nresume_from_checkpoint:\n"},
        {"a.yml": AXOLOTL, "README.md": SAYS},
        {"a.yaml": f"{FACTORY}overwrite_output_dir: true\n", "README.md": SAYS},
        {"train.py": SCRIPT.format("None"), "README.md": SAYS},
    ],
)
def test_a_run_that_begins_anew_is_said(tmp_path: Path, files: dict[str, str]) -> None:
    assert len(audited(tmp_path, files, select=("CFG011",)).findings) == 1


@pytest.mark.parametrize(
    "files",
    [
        {"a.yml": f"{AXOLOTL}# picks up after the restart by itself\nauto_resume_from_checkpoints: true\n"},
        {"a.yml": f"{AXOLOTL}# continues where it left off\nresume_from_checkpoint: out/checkpoint-100\n"},
        {"a.yml": f"{AXOLOTL}# set this, and it resumes by itself\nauto_resume_from_checkpoints: false\n"},
        {"a.yml": f"{AXOLOTL}auto_resume_from_checkpoints: false\n", "README.md": "It does not resume by itself.\n"},
        {"a.yaml": f"{FACTORY}overwrite_output_dir: false\n", "README.md": SAYS},
        {"a.yaml": FACTORY, "README.md": SAYS},  # which looks for the last one itself
        {
            "a.yml": AXOLOTL,
            "run.sh": "axolotl train a.yml --resume-from-checkpoint out/checkpoint-1\n",
            "README.md": SAYS,
        },
        {"train.py": SCRIPT.format("True"), "README.md": SAYS},
        {"a.yml": AXOLOTL, "README.md": "The scraper resumes from the last page.\n"},
        {"a.yml": AXOLOTL, "README.md": "The job of the label tool picks up where it left off.\n"},
    ],
)
def test_one_that_goes_on_is_not(tmp_path: Path, files: dict[str, str]) -> None:
    assert not audited(tmp_path, files, select=("CFG011",)).findings
