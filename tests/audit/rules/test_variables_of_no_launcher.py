"""Promise: a rank's variable that no launcher has set is found where a command starts the program by `python` alone."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

TRAIN = """import os
import torch
import torch.distributed as dist
{top}

{before}
    for batch in loader:
        model(**batch).loss.backward()
        opt.step()
        opt.zero_grad()


if __name__ == "__main__":
    main()
"""
READS = 'WORLD_SIZE = int(os.environ["WORLD_SIZE"])'
MAKE = "PY ?= python\none:\n\tCUDA_VISIBLE_DEVICES=0 $(PY) train.py\nfour:\n\ttorchrun --nproc_per_node 4 train.py\n"


@pytest.mark.parametrize(
    ("files", "top", "main", "found"),
    [
        ({"Makefile": MAKE}, READS, "def main():", 1),
        ({"one.sh": "python train.py\n", "ddp.sh": "torchrun --nproc_per_node 2 train.py\n"}, READS, "def main():", 1),
        ({"one.sh": "python train.py\n"}, "", "def main():\n    rank = int(os.environ['LOCAL_RANK'])", 1),
        (
            {"Makefile": MAKE},
            "def setup():\n    dist.init_process_group('nccl')\n    return int(os.environ['LOCAL_RANK'])\n",
            "def main():\n    rank = setup()",
            1,
        ),
        # its own texts call the launcher's command by its short name
        (
            {"README.md": "    python train.py\n", "ddp.sh": "torchrun --nproc_per_node 2 train.py\n"},
            READS,
            "def main():",
            0,
        ),
        ({"ddp.sh": "torchrun --nproc_per_node 2 train.py\n"}, READS, "def main():", 0),
        ({"one.sh": "export WORLD_SIZE=1\npython train.py\n"}, READS, "def main():", 0),
        ({"one.sh": "python train.py\n"}, 'W = int(os.environ.get("WORLD_SIZE", 1))', "def main():", 0),
        (
            {"one.sh": "python train.py\n"},
            "",
            "def main():\n    if ddp:\n        rank = int(os.environ['LOCAL_RANK'])",
            0,
        ),
        (
            {"one.sh": "python train.py\n"},
            "def setup():\n    if not ddp:\n        return 0\n    return int(os.environ['LOCAL_RANK'])\n",
            "def main():\n    rank = setup()",
            0,
        ),
        (
            {"one.sh": "python train.py\n"},
            "",
            "def main():\n    rank = int(os.environ['RANK']) if 'RANK' in os.environ else 0",
            0,
        ),
        (
            {"one.sh": "python train.py\n"},
            "",
            "def main():\n    os.environ['RANK'] = '0'\n    r = os.environ['RANK']",
            0,
        ),
    ],
)
def test_read_without_a_launcher(tmp_path: Path, files: dict[str, str], top: str, main: str, found: int) -> None:
    train = TRAIN.format(top=top, before=main)
    said = audited(tmp_path / "a", {"train.py": train, **files}, select=("DST051",)).findings
    assert len([one for one in said if "KeyError" in one.message]) == found
