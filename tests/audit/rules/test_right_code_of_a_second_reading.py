"""Promise: what a second reader found to be right is left alone, and its faulty twin is still said."""

import json
from pathlib import Path

import pytest

from tests.audit.made_up import audited

TRAIN = (
    "from datasets import load_dataset\nfrom trl import SFTConfig, SFTTrainer\n"
    "SFTTrainer(model='a/b', args=SFTConfig(output_dir='o'), train_dataset=load_dataset('a/b', split='train')).train()\n"
)
JOB = "#!/bin/bash\nexport HF_HOME=$SLURM_TMPDIR/hf\n{}srun python train.py\n"


@pytest.mark.parametrize("cells", [[], None, [{"cell_type": "markdown", "metadata": {}, "source": ["# Results\n"]}]])
def test_a_notebook_without_code_ends_nothing(tmp_path: Path, cells: object) -> None:
    notebook = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    audited(tmp_path, {"x.ipynb": notebook, "train.py": TRAIN})


@pytest.mark.parametrize(("copies", "found"), [("rsync -a ~/hf/ $HF_HOME/\n", False), ("", True)])
def test_a_cache_that_the_job_copies_first(tmp_path: Path, copies: str, found: bool) -> None:
    files = {"train.py": TRAIN, "job.sbatch": JOB.format(copies)}
    assert bool(audited(tmp_path, files, select=("HST006",)).findings) is found


@pytest.mark.parametrize(
    ("image", "more", "found"),
    [
        ("FROM a\nENV HF_HOME=/cache/hf\n", "", False),
        ("FROM a\n", " --env-file hf.env", False),
        ("FROM a\n", "", True),
    ],
)
def test_a_cache_that_the_image_puts_into_the_volume(tmp_path: Path, image: str, more: str, found: bool) -> None:
    run = f"docker run --rm --gpus all{more} -v /data/hf:/cache/hf app python /app/train.py\n"
    files = {"train.py": TRAIN, "Dockerfile": image, "run.sh": run}
    assert bool(audited(tmp_path, files, select=("HST006",)).findings) is found
