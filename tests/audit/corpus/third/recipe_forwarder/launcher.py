#!/usr/bin/env python3
"""Reads recipe.yaml and starts train.py with its content as flags.

    ./launcher.py recipe.yaml [--dry]
"""

import shlex
import subprocess
import sys
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent

# recipe key -> flag of train.py
FLAGS = {
    "model": "--model",
    "data": "--data",
    "out": "--out",
    "epochs": "--epochs",
    "lr": "--lr",
    "micro_batch": "--micro_batch",
    "accumulation": "--accumulation",
    "max_length": "--max_length",
    "lora_rank": "--lora-rank",
    "lora_alpha": "--lora_alpha",
    "seed": "--seed",
}


def build_command(recipe):
    command = [sys.executable, str(HERE / "train.py")]
    for key, flag in FLAGS.items():
        if key in recipe:
            command += [flag, str(recipe[key])]
    return command


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    recipe = yaml.safe_load(Path(sys.argv[1]).read_text(encoding="utf-8"))
    command = build_command(recipe)
    print(shlex.join(command))
    if "--dry" not in sys.argv[2:]:
        sys.exit(subprocess.run(command, cwd=HERE).returncode)


if __name__ == "__main__":
    main()
