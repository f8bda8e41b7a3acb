"""Promise: a speed of a whole command, or of a short run that compiles, is doubted; a sweep by steps a second too."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited
from tests.audit.rules.scripts import said

SHELL = "#!/bin/bash\n{0}\npython train.py --max_steps 50\nEND=$(date +%s)\n{1}\n"
RATE = 'echo "$((50 * 8 / (END - START))) samples/s"'


@pytest.mark.parametrize(
    ("starts", "shows", "found"),
    [
        ("START=$(date +%s)", RATE, True),
        ("SECONDS=0", 'echo "$((50 * 8 / SECONDS)) samples/s"', True),
        ("START=$(date +%s)", 'echo "took $((END - START)) s"', False),
        ("START=$(date +%s)", 'echo "took $(((END - START) / 3600)) hours"', False),
        ("echo go", 'grep "samples/s" log.txt', False),
    ],
)
def test_a_clock_of_a_shell(tmp_path: Path, starts: str, shows: str, found: bool) -> None:
    files = {"bench.sh": SHELL.format(starts, shows), "train.py": "print(1)\n"}
    assert bool(audited(tmp_path, files, select=("MSR004",)).findings) is found


PROCESS = """import subprocess, time
t = time.time()
subprocess.run(["torchrun", "train.py"], check=True)
{}
"""


@pytest.mark.parametrize(
    ("shows", "found"), [("print(steps / (time.time() - t), 'it/s')", True), ("print(time.time() - t)", False)]
)
def test_a_clock_around_a_process(tmp_path: Path, shows: str, found: bool) -> None:
    assert bool(said("MSR004", tmp_path, PROCESS.format(shows))) is found


TRAINER = """from transformers import Trainer, TrainingArguments
args = TrainingArguments("o", max_steps={}, torch_compile={})
print(Trainer(model, args, train_dataset=rows).train().metrics["train_samples_per_second"])
"""


@pytest.mark.parametrize(("steps", "compiles", "found"), [(50, True, True), (50, False, False), (9000, True, False)])
def test_the_trainers_own_figure(tmp_path: Path, steps: int, compiles: bool, found: bool) -> None:
    assert bool(said("MSR004", tmp_path, TRAINER.format(steps, compiles))) is found


SWEEP = (
    "program: train.py\nmethod: grid\nmetric:\n  name: {}\n  goal: maximize\nparameters:\n  {}:\n    values: [1, 2]\n"
)


@pytest.mark.parametrize(
    ("metric", "parameter", "found"),
    [
        ("train/steps_per_second", "per_device_train_batch_size", True),
        ("train/tokens_per_second", "per_device_train_batch_size", False),
        ("train/steps_per_second", "learning_rate", False),
    ],
)
def test_a_sweep(tmp_path: Path, metric: str, parameter: str, found: bool) -> None:
    files = {"sweep.yaml": SWEEP.format(metric, parameter), "train.py": "print(1)\n"}
    assert bool(audited(tmp_path / "a", files, select=("MSR005",)).findings) is found
    text = f"def objective(trial):\n    x = trial.suggest_int('{parameter}', 1, 9)\n    return run(x)['{metric}']\n"
    assert bool(said("MSR005", tmp_path / "b", text)) is found
