"""Promise: a file that a notebook's cell or a shell script writes before it is used is read as if it lay there, and what is
found in it is told where it is written."""

import json
from pathlib import Path

import pytest

from tests.audit.made_up import audited

AXOLOTL = (
    "base_model: Qwen/Qwen2.5-7B\ndatasets:\n  - path: d.jsonl\n    type: alpaca\n{}: 4096\nmicro_batch_size: 1\n"
    "output_dir: out\n"
)
PARSES = (
    "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float, default=1e-5)\n"
    "args = parser.parse_args()\nprint(args.lr)\n"
)
TRAINS = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B')\n"
    "Trainer(model=model, args=TrainingArguments('out', optim='{}', bf16=True), train_dataset=d).train()\n"
)


def book(*cells: str) -> str:
    made = [{"cell_type": "code", "metadata": {}, "source": one.splitlines(True), "outputs": []} for one in cells]
    return json.dumps({"cells": made, "nbformat": 4, "nbformat_minor": 5, "metadata": {}})


def said(tmp_path: Path, files: dict[str, str]) -> list[tuple[str, str]]:
    found = audited(tmp_path, files).findings
    assert all(one.place.file in files for one in found)
    assert not any(change.place.file not in files for one in found for change in one.remedy.changes)
    return [(one.code, str(one.place)) for one in found]


def test_a_cell_writes_a_configuration(tmp_path: Path) -> None:
    cells = ["import os", "%%writefile c.yml\n" + AXOLOTL.format("max_seq_length"), "!axolotl train c.yml"]
    assert said(tmp_path, {"n.ipynb": book(*cells)}) == [("CFG001", "n.ipynb, cell 2, line 6 `max_seq_length`")]


@pytest.mark.parametrize(("flag", "found"), [("--learning_rate", True), ("--lr", False)])
@pytest.mark.parametrize("starts", ["!python train.py {} 1e-4", "%%bash\npython train.py {} 1e-4"])
def test_a_cell_writes_the_program_that_another_starts(tmp_path: Path, flag: str, found: bool, starts: str) -> None:
    codes = [
        code for code, _ in said(tmp_path, {"n.ipynb": book("%%writefile train.py\n" + PARSES, starts.format(flag))})
    ]
    assert ("CFG008" in codes) is found


def test_a_cell_in_a_folder_writes_beside_its_notebook(tmp_path: Path) -> None:
    cells = ["%%writefile train.py\n" + TRAINS.format("adamw_torch"), "!accelerate launch --num_processes 2 train.py"]
    assert said(tmp_path, {"nb/n.ipynb": book(*cells)}) == [("OPT001", "nb/n.ipynb, cell 1, line 4 `optim`")]


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("cat > c.yml <<'EOF'", True),
        ("cat <<EOF > c.yml", True),
        ("tee c.yml <<EOF", True),
        ("cat >> c.yml <<EOF", False),  # a part of it
        ("cat > other.yml <<EOF", False),
        ("cat > $NAME.yml <<EOF", False),
    ],
)
def test_a_shell_script_writes_a_configuration(tmp_path: Path, command: str, found: bool) -> None:
    text = f"set -e\n{command}\n{AXOLOTL.format('max_seq_length')}EOF\naxolotl train c.yml\n"
    if "other" in command:
        text = text.replace("max_seq_length", "sequence_len")
    assert said(tmp_path, {"run.sh": text}) == ([("CFG001", "run.sh:7 `max_seq_length`")] if found else [])


def test_variables_that_are_filled_in_make_another_text(tmp_path: Path) -> None:
    text = f"cat > c.yml <<EOF\nseed: $SEED\n{AXOLOTL.format('max_seq_length')}EOF\naxolotl train c.yml\n"
    assert said(tmp_path, {"run.sh": text}) == []


def test_a_file_that_lies_there_is_read_and_no_other_of_its_name(tmp_path: Path) -> None:
    writes = book("%%writefile train.py\n" + TRAINS.format("adamw_torch"), "!python train.py")
    assert said(tmp_path / "a", {"train.py": TRAINS.format("adamw_torch_fused"), "n.ipynb": writes}) == []
    twice = book(*(f"%%writefile train.py\n{TRAINS.format(name)}" for name in ("adamw_torch", "adamw_torch_fused")))
    assert said(tmp_path / "b", {"n.ipynb": twice}) == []
