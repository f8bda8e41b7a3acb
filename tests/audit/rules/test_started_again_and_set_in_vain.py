"""Promise: a key of resuming that is off resumes nothing; a setting that a launcher keeps to itself is said."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

AXOLOTL = (
    "base_model: Qwen/Qwen2.5-0.5B\ndatasets: [{path: x, type: alpaca}]\nmicro_batch_size: 2\nsequence_len: 2048\n"
    "output_dir: out\n"
)
FACTORY = (
    "stage: sft\ndo_train: true\nmodel_name_or_path: Qwen/Qwen2.5-0.5B\ndataset: d\ntemplate: qwen\n"
    "finetuning_type: lora\noutput_dir: out\nsave_steps: 100\n"
)
JOB = "#!/bin/bash\n#SBATCH --requeue\n#SBATCH --gres=gpu:a100:4\n{}\n"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"a.yml": f"{AXOLOTL}auto_resume_from_checkpoints: false\n", "j.slurm": "axolotl train a.yml"}, "auto_resume"),
        ({"a.yml": f"{AXOLOTL}auto_resume_from_checkpoints: true\n", "j.slurm": "axolotl train a.yml"}, ""),
        ({"a.yml": f"{AXOLOTL}resume_from_checkpoint: out/c\n", "j.slurm": "axolotl train a.yml"}, ""),
        (
            {"a.yaml": f"{FACTORY}overwrite_output_dir: true\n", "j.slurm": "llamafactory-cli train a.yaml"},
            "overwrite_output_dir: false",
        ),
        ({"a.yaml": FACTORY, "j.slurm": "llamafactory-cli train a.yaml"}, ""),
    ],
)
def test_a_job_that_is_started_again(tmp_path: Path, files: dict[str, str], says: str) -> None:
    every = {name: JOB.format(text) if name == "j.slurm" else text for name, text in files.items()}
    found = audited(tmp_path, every, select=("CKP002",)).findings
    assert [says in one.remedy.text for one in found] == ([True] if says else [])


SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d.jsonl\nnum_train_epochs: 3\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("EPOCHS=${EPOCHS:-3}\ntrl sft --config sft.yaml\n", True),
        ("LR=2e-5\ntrl sft --config sft.yaml\n", True),
        ("EPOCHS=3\necho training for $EPOCHS\ntrl sft --config sft.yaml\n", True),
        ("EPOCHS=${EPOCHS:-3}\ntrl sft --config sft.yaml --num_train_epochs $EPOCHS\n", False),
        ('EPOCHS=3\nARGS="--num_train_epochs $EPOCHS"\ntrl sft --config sft.yaml $ARGS\n', False),
        ("export EPOCHS=3\ntrl sft --config sft.yaml\n", False),  # what it starts may read it
        ("set -a\nEPOCHS=3\ntrl sft --config sft.yaml\n", False),
        ("TITLE=3\ntrl sft --config sft.yaml\n", False),
        ("EPOCHS=3\nsource more.sh\ntrl sft --config sft.yaml\n", False),
    ],
)
def test_a_setting_that_no_command_gets(tmp_path: Path, text: str, found: bool) -> None:
    files = {"sft.yaml": SFT, "run.sh": f"#!/bin/bash\n{text}", "more.sh": "trl sft --num_train_epochs $EPOCHS\n"}
    said = [one for one in audited(tmp_path, files, select=("CFG009",)).findings if one.place.file == "run.sh"]
    assert bool(said) is found
