"""Promise: what a launcher gives and a program does not take, or takes as something else, is said with both ends, however
the launcher is written; what is meant so is left alone."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

_SFT = "model_name_or_path: a/b\ndataset_name: c/d\nlearning_rate: 1.0e-5\nmax_length: 4096\n"
_TRL = "trl sft --config sft.yaml --output_dir"
_RUN = "run() {\n    local name=$1\n    shift\n    " + _TRL + ' "out/$name"'


def codes(folder: Path, files: dict[str, str], *select: str) -> list[str]:
    return [f"{one.code} {one.place.file}" for one in audited(folder, files, select=select).findings]


@pytest.mark.parametrize(
    ("script", "lost"),
    [
        (f"{_RUN}\n}}\n\nrun a\nrun b --learning_rate 4.0e-5\n", True),
        (f'{_RUN} "$@"\n}}\n\nrun a\nrun b --learning_rate 4.0e-5\n', False),
        (f"{_RUN} ${{@:2}}\n}}\n\nrun b --learning_rate 4.0e-5\n", False),
        (f"{_RUN}\n}}\n\nrun a\nrun b\n", False),
        (f'function go {{\n  {_TRL} "out/$1" "$2" "$3"\n}}\ngo a --learning_rate 4.0e-5\n', False),
        (f'function go {{\n  {_TRL} "out/$1"\n}}\ngo a --packing true\n', True),
        (f'say() {{\n  echo "$1"\n}}\nsay a --packing true\n{_TRL} out\n', False),
    ],
)
def test_functions_that_hand_nothing_on(tmp_path: Path, script: str, lost: bool) -> None:
    found = audited(tmp_path, {"run.sh": script, "sft.yaml": _SFT}, select=("CFG009",)).findings
    assert any("hands nothing" in one.message for one in found) is lost


_READS = (
    "import os\nfrom transformers import Trainer, TrainingArguments\nLR = float(os.getenv('LR', '2e-5'))\n"
    "Trainer(model=m, args=TrainingArguments('out', learning_rate=LR), train_dataset=d).train()\n"
)
_SERVICE = (
    "services:\n  a:\n    command: python /app/train.py\n    environment:\n      {}\n"
    "    volumes:\n      - ./app:/app:ro\n"
)


@pytest.mark.parametrize(
    ("variable", "lost"),
    [
        ('LEARNING_RATE: "1e-4"', True),
        ("- LEARNING_RATE=1e-4", True),
        ('LR: "1e-4"', False),
        ("HF_HOME: /cache", False),
    ],
)
def test_variables_of_services(tmp_path: Path, variable: str, lost: bool) -> None:
    files = {"compose.yaml": _SERVICE.format(variable), "app/train.py": _READS}
    found = audited(tmp_path, files, select=("CFG009",)).findings
    assert [one.place.line for one in found] == [5] * lost


_CLICK = (
    "import click\n{}\n@click.command()\n@click.option('--kind', type={})\ndef main(kind):\n"
    "    print(kind + 'x')\n\nmain()\n"
)
_TYPER = "import typer\n{}\ndef main(kind: {}):\n    train(kind)\n\ntyper.run(main)\n"


@pytest.mark.parametrize(
    ("script", "word", "refused"),
    [
        (_CLICK.format("", "click.Choice(['bf16', 'none'])"), "fp32", True),
        (_CLICK.format("", "click.Choice(['bf16', 'none'])"), "bf16", False),
        (_CLICK.format("KINDS = ('bf16', 'none')", "click.Choice(KINDS)"), "fp32", True),
        (_CLICK.format("", "click.Choice(['bf16'], case_sensitive=False)"), "BF16", False),
        (_CLICK.format("", "click.Choice(load())"), "fp32", False),
        (_CLICK.format("", "int"), "2.5", True),
        (_CLICK.format("", "int"), "2", False),
        (_CLICK.format("", "click.Choice(['bf16'])"), "$KIND", False),
        (_TYPER.format("from typing import Literal", "Literal['bf16', 'fp16']"), "fp32", True),
        (_TYPER.format("import enum\nclass K(str, enum.Enum):\n    a = 'bf16'\n", "K"), "fp32", True),
        (_TYPER.format("import enum\nclass K(str, enum.Enum):\n    a = 'bf16'\n", "K"), "bf16", False),
    ],
)
def test_choices_of_click(tmp_path: Path, script: str, word: str, refused: bool) -> None:
    files = {"train.py": script, "run.sh": f"python train.py --kind {word}\n"}
    assert bool(codes(tmp_path, files, "CFG008")) is refused


_LOOP = "for key, value in E[name].items():\n    {}\n"
_START = (
    "import subprocess, sys, tomllib\nE = tomllib.load(open('runs.toml', 'rb'))\nfor name in E:\n"
    "    cmd = ['python', 'worker.py']\n    for key, value in E[name].items():\n        {}\n    subprocess.run(cmd)\n"
)
_WORKER = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float)\n"
    "p.add_argument('--lora', {})\na = p.parse_args()\nprint(a.lr, a.lora)\n"
)
_ADDS = "cmd += [f'--{key}', str(value)]"


@pytest.mark.parametrize(
    ("adds", "option", "toml", "refused"),
    [
        (_ADDS, "action='store_true'", "lora = true", True),
        ("cmd.extend(['--' + key, str(value)])", "action='store_true'", "lora = true", True),
        (_ADDS, "action='store_true'", "lr = 1e-4", False),
        (_ADDS, "type=parse", "lora = true", False),
        (
            "cmd += [f'--{key}'] if value is True else [f'--{key}', str(value)]",
            "action='store_true'",
            "lora = true",
            False,
        ),
    ],
)
def test_switches_out_of_files(tmp_path: Path, adds: str, option: str, toml: str, refused: bool) -> None:
    files = {"launch.py": _START.format(adds), "worker.py": _WORKER.format(option), "runs.toml": f"[a]\n{toml}\n"}
    assert bool(codes(tmp_path, files, "CFG008")) is refused


_OWN = (
    "import argparse, yaml\nfrom trl import SFTConfig, SFTTrainer\np = argparse.ArgumentParser()\n"
    "p.add_argument('--config')\np.add_argument('--set', nargs='*')\na = p.parse_args()\ncfg = load(a.config, a.set)\n"
    "SFTTrainer(model='a/b', args=SFTConfig('out', max_length=cfg['data']['max_length']), train_dataset=d).train()\n"
)
_LOADS = (
    "import json\nfrom trl import SFTConfig, SFTTrainer\ncfg = json.load(open('a.json'))\n{}\n"
    "SFTTrainer(model='a/b', args=SFTConfig(**cfg), train_dataset=d).train()\n"
)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"run.sh": "python t.py --config a.yaml --set data.max_length=1024\n", "t.py": _OWN}, True),
        ({"run.sh": "python t.py --config a.yaml --set data.max_length=4096\n", "t.py": _OWN}, False),
        ({"run.sh": "python t.py --config a.yaml --set data.max_length=$LEN\n", "t.py": _OWN}, False),
        (
            {
                "run.sh": "python t.py --config a.yaml\npython t.py --config a.yaml --set data.max_length=9\n",
                "t.py": _OWN,
            },
            False,
        ),
        ({"t.py": _LOADS.format("cfg.update(learning_rate=1e-3, output_dir='b')")}, True),
        ({"t.py": _LOADS.format("cfg['learning_rate'] = 1e-3")}, True),
        ({"t.py": _LOADS.format("cfg['learning_rate'] = 1e-5")}, False),
        ({"t.py": _LOADS.format("cfg['output_dir'] = 'b'")}, False),
        ({"t.py": _LOADS.format("if debug:\n    cfg['learning_rate'] = 1e-3")}, False),
    ],
)
def test_values_that_are_replaced(tmp_path: Path, files: dict[str, str], said: bool) -> None:
    files = {"a.yaml": "data:\n  max_length: 4096\n", "a.json": '{"learning_rate": 1e-5, "output_dir": "a"}', **files}
    assert bool(codes(tmp_path, files, "CFG007")) is said


def test_a_trial_beside_the_run(tmp_path: Path) -> None:
    lines = f"smoke:\n\t{_TRL} a --max_length 256\n\ntrain:\n\t{_TRL} a\n"
    assert not codes(tmp_path, {"Makefile": lines, "sft.yaml": _SFT}, "CFG007")
    assert codes(tmp_path, {"Makefile": f"train:\n\t{_TRL} a --max_length 256\n", "sft.yaml": _SFT}, "CFG007")
    turned = f"smoke:\n\t{_TRL} a --max_steps 5\n\ntrain:\n\t{_TRL} a --max_length 256\n"
    assert codes(tmp_path, {"Makefile": turned, "sft.yaml": _SFT}, "CFG007")
