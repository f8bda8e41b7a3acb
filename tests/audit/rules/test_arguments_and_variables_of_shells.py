"""Promise: what a shell script, or a function in one, is given and drops is found, and what it sets and does not export."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

TRAIN = """import argparse
import os
ap = argparse.ArgumentParser()
ap.add_argument("--lr", type=float, default=1e-5)
ap.add_argument("--epochs", type=int, default=1)
a = ap.parse_args()
print(a.lr, a.epochs, os.environ.get("BATCH", 4))
"""
ONE = "torchrun --nproc_per_node 4 train.py --lr $1\n"


def said(folder: Path, files: dict[str, str]) -> int:
    return len(audited(folder, {"train.py": TRAIN, **files}, select=("CFG009",)).findings)


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"run.sh": ONE, "sweep.sh": "for lr in 1e-5 2e-5; do\n  bash run.sh $lr --epochs 3\ndone\n"}, 1),
        ({"run.sh": ONE, "Makefile": "long:\n\tbash run.sh 1e-5 --epochs 3\n"}, 1),
        ({"run.sh": ONE, "all.sh": "sbatch --gres=gpu:4 run.sh 1e-5 3\n"}, 1),
        ({"run.sh": f"train() {{\n  {ONE}}}\ntrain 1e-5 --epochs 3\n"}, 1),
        ({"run.sh": f"function train() {{\n  {ONE}}}\nBATCH=2 train 1e-5 \\\n  --epochs 3\n"}, 1),
        ({"run.sh": ONE, "sweep.sh": "bash run.sh 1e-5 > log.txt 2>&1 &\n"}, 0),
        ({"run.sh": ONE, "sweep.sh": "bash run.sh 1e-5  # the usual rate\nbash run.sh 2e-5 | tee log\n"}, 0),
        ({"run.sh": 'lr=$1\nshift\npython train.py --lr $lr "$@"\n', "sweep.sh": "bash run.sh 1e-5 --epochs 3\n"}, 0),
        ({"run.sh": f"train() {{\n  {ONE}}}\ntrain 1e-5\ntrain 2e-5; echo done\n"}, 0),
        ({"run.sh": 'train() {\n  python train.py --lr "$1" "${@:2}"\n}\ntrain 1e-5 --epochs 3\n'}, 0),
        ({"run.sh": f'say() {{\n  echo "$1"\n}}\nsay now 3\n{ONE}'}, 0),
        ({"run.sh": "source common.sh\n" + ONE, "sweep.sh": "bash run.sh 1e-5 --epochs 3\n"}, 0),
        ({"run.sh": ONE, "other/run2.sh": "bash re-run.sh 1e-5 --epochs 3\n"}, 0),
    ],
)
def test_arguments(tmp_path: Path, files: dict[str, str], found: int) -> None:
    assert said(tmp_path / "a", files) == found


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"run.sh": "#!/usr/bin/env bash\nBATCH=16\npython train.py --lr 1e-5\n"}, 1),
        ({"run.sh": "WANDB_PROJECT=claims\nOMP_NUM_THREADS=8  # as many as cores\npython train.py\n"}, 2),
        ({"run.sh": "CUDA_VISIBLE_DEVICES=0,1\ntorchrun --nproc_per_node 2 train.py\n"}, 1),
        ({"run.sh": "export BATCH=16\npython train.py\n"}, 0),
        ({"run.sh": "BATCH=16\nexport BATCH\npython train.py\n"}, 0),
        ({"run.sh": "set -a\nBATCH=16\nset +a\npython train.py\n"}, 0),
        ({"run.sh": "BATCH=16 python train.py\n"}, 0),
        ({"run.sh": "BATCH=16\nBATCH=$BATCH python train.py\n"}, 0),
        ({"run.sh": "EPOCHS=3\npython train.py --epochs $EPOCHS\n"}, 0),
        ({"env.sh": "BATCH=16\npython -V\n", "run.sh": "set -a\nsource env.sh\npython train.py\n"}, 0),
        ({"env.sh": "WANDB_PROJECT=claims\n", "run.sh": "source env.sh\npython train.py\n"}, 1),
        ({"env.sh": "export WANDB_PROJECT=claims\n", "run.sh": "source ./env.sh\npython train.py\n"}, 0),
        ({"env.sh": "WANDB_PROJECT=claims\n", "run.sh": ". env.sh\nexport WANDB_PROJECT\npython train.py\n"}, 0),
        ({"job.sbatch": "#!/bin/bash\n#SBATCH --gres=gpu:2\nCUDA_VISIBLE_DEVICES=0\npython train.py\n"}, 0),
        ({"run.sh": "BATCH=16\npython train.py\n", "README.md": "    BATCH=8 bash run.sh\n"}, 1),
    ],
)
def test_variables(tmp_path: Path, files: dict[str, str], found: int) -> None:
    assert said(tmp_path / "a", files) == found
