"""Promise: a configuration beside those that programs open by names of their own is said; one that a command may hand over
is not. A file of accelerate's is said where nothing is started by it."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

FILES = {
    "conf/base.yaml": "lr: 1.0e-4\nepochs: 3\nseed: 1\n",
    "conf/big.yaml": "lr: 5.0e-5\nepochs: 1\nseed: 1\n",
    "README.md": "On the big machine the values of `conf/big.yaml` are used.\n",
}
USES = "print(cfg['lr'], cfg['epochs'], cfg['seed'])\n"


@pytest.mark.parametrize(
    ("loads", "says"),
    [
        ("import yaml\ncfg = yaml.safe_load(open('conf/base.yaml'))\n", True),
        ("import yaml\nPATH = 'conf/base.yaml'\nwith open(PATH) as f:\n    cfg = yaml.safe_load(f)\n", True),
        ("from omegaconf import OmegaConf\ncfg = OmegaConf.load('conf/base.yaml')\n", True),
        (
            "import yaml\nfrom pathlib import Path\ndef load(path='conf/base.yaml'):\n"
            "    return yaml.safe_load(Path(path).read_text())\ncfg = load()\n",
            True,
        ),
        (
            "import sys, yaml\nfrom pathlib import Path\ndef load(path='conf/base.yaml'):\n"
            "    return yaml.safe_load(Path(path).read_text())\ncfg = load(sys.argv[1])\n",
            False,
        ),
        ("import sys, yaml\ncfg = yaml.safe_load(open(sys.argv[1]))\n", False),
        ("import os, yaml\ncfg = yaml.safe_load(open(os.environ.get('CFG', 'conf/base.yaml')))\n", False),
        ("import yaml\nname = input()\ncfg = yaml.safe_load(open(f'conf/{name}.yaml'))\n", False),
        ("import yaml\nld = yaml.safe_load\ncfg = ld(open('conf/base.yaml')) | ld(open('conf/big.yaml'))\n", False),
    ],
)
def test_names_in_the_code(tmp_path: Path, loads: str, says: bool) -> None:
    found = audited(tmp_path, {**FILES, "train.py": loads + USES, "run.sh": "python train.py\n"}, select=("CFG010",))
    assert [one.place.file for one in found.findings if "Nothing loads" in one.message] == ["conf/big.yaml"] * says


ACCELERATE = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_machines: 1\n"
    "num_processes: 4\n"
)


@pytest.mark.parametrize(
    ("start", "head", "says"),
    [
        ("torchrun --nproc_per_node 4 train.py", "", True),
        ("python train.py", "", True),
        ("accelerate launch --config_file fsdp.yaml train.py", "", False),
        ("export ACCELERATE_CONFIG_FILE=fsdp.yaml\npython train.py", "", False),
        ("torchrun --nproc_per_node 4 train.py", "# kept for reference\n", False),
    ],
)
def test_a_file_of_a_launcher_that_nobody_calls(tmp_path: Path, start: str, head: str, says: bool) -> None:
    files = {"fsdp.yaml": head + ACCELERATE, "train.py": "print(1)\n", "run.sh": f"{start}\n"}
    found = audited(tmp_path, files, select=("CFG010",)).findings
    assert [one.place.file for one in found] == ["fsdp.yaml"] * says
