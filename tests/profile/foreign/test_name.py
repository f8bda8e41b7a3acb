"""Promise: a profile's folder is called as the script is."""

import pytest

from dynotune.profile.foreign.command import name_of


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --epochs 3", "train"),
        ("accelerate launch --num_processes 2 src/finetune.py -m x 1", "finetune"),
        ("python -m my.trainer --lr 1e-4", "my.trainer"),
        ("trl sft --config sft.yaml", "trl"),
        ("/usr/bin/bash run.sh", "run"),
    ],
)
def test_by_its_script(command: str, name: str) -> None:
    assert name_of(command.split()) == name
