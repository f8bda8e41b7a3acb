"""Promise: a flag that a launcher in Python writes and the started program's parser lacks is found wherever in the command
it stands; flags of launchers and of other commands are none of the program's."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

TRAIN = """from dataclasses import dataclass, field
from transformers import HfArgumentParser, TrainingArguments


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="Qwen/Qwen2.5-0.5B")
    attn_implementation: str = field(default="sdpa")


model, training = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
print(model.model_name_or_path, model.attn_implementation)
"""
MODULE = 'cmd = [sys.executable, "-m", "pkg.train"]\n'
ENDS = "\nsubprocess.call(cmd)\n"


def lines(tmp_path: Path, body: str) -> list[str]:
    launcher = f"import subprocess\nimport sys\n{body}{ENDS}"
    result = audited(tmp_path, {"pkg/__init__.py": "", "pkg/train.py": TRAIN, "launch.py": launcher})
    return [one.message for one in result.findings if one.code == "CFG008"]


@pytest.mark.parametrize(
    "body",
    [
        'cmd = ["torchrun", "--standalone", "-m", "pkg.train"]\ncmd += ["--bf16", "true"]\ncmd += ["--use_flash_attn", "0"]',
        'cmd = ["torchrun", "--nproc_per_node", "4", "-m", "pkg.train", "--use_flash_attn", "0", "--bf16", "1"]',
        'cmd = ["torchrun", "--standalone", "pkg/train.py", "--use_flash_attn", "0"]',
        f'{MODULE}cmd += ["--use_flash_attn=0"]',
        f'{MODULE}cmd.append(f"--use_flash_attn={{flash}}")',
        f'{MODULE}cmd.append("--use_flash_attn")',
        f'{MODULE}cmd.extend(["--use_flash_attn", "1"])',
        'def more():\n    return ["--use_flash_attn", "1"]\n\n\ncmd = [sys.executable, "-m", "pkg.train", *more()]',
    ],
)
def test_a_flag_that_the_program_lacks(tmp_path: Path, body: str) -> None:
    (message,) = lines(tmp_path, body)
    assert "`--use_flash_attn`" in message


@pytest.mark.parametrize(
    "body",
    [
        'cmd = ["torchrun", "--standalone", "-m", "pkg.train"]\ncmd += ["--attn_implementation", "eager", "--bf16=1"]',
        'cmd = ["torchrun"]\ncmd += ["--standalone", "--nproc_per_node", "4"]\ncmd += ["-m", "pkg.train", "--bf16", "1"]',
        'launch = ["accelerate", "launch"]\nif many:\n    launch += ["--multi_gpu", "--num_processes=4"]\n'
        'cmd = launch + ["-m", "pkg.train"]',
        f'{MODULE}subprocess.call(["git", "log", "--oneline"])\nsubprocess.call(["sbatch", "--partition", "gpu", "x.sh"])',
        f'import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument("--name")\n{MODULE}',
        'cmd = [sys.executable, "-m", "other.train", "--use_flash_attn", "1"]',
    ],
)
def test_flags_of_others_are_none_of_its(tmp_path: Path, body: str) -> None:
    assert lines(tmp_path, body) == []
