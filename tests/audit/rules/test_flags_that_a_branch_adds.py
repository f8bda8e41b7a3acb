"""Promise: a flag that a shell's branch adds to a command is held against the program's parser; words of another branch's
command, or of a variable that was given anew, are not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

PARSES = (
    "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float)\n"
    "parser.add_argument('--{}', type=int)\nargs = parser.parse_args()\nprint(args.lr, args.{})\n"
)
FILES = {"train.py": PARSES.format("epochs", "epochs"), "dpo.py": PARSES.format("beta", "beta")}


@pytest.mark.parametrize(
    ("shell", "found"),
    [
        ('A=(--lr 1)\nif [ "$D" = 1 ]; then\n  A+=(--num_rounds 3)\nfi\npython train.py "${A[@]}"\n', 1),
        ('A="--lr 1"\nif [ -n "$D" ]; then A="$A --num_rounds 3"; fi\npython train.py $A\n', 1),
        ('case $1 in\n  a) E="--num_rounds 3";;\n  *) E="--epochs 3";;\nesac\npython train.py $E\n', 1),
        ('A=(--lr 1)\nif [ "$D" = 1 ]; then\n  A+=(--epochs 3)\nfi\npython train.py "${A[@]}"\n', 0),
        ('case $1 in\n  a) A="--epochs 1"; python train.py $A;;\n  *) A="--beta 1"; python dpo.py $A;;\nesac\n', 0),
        (
            'if [ $D ]; then E="--epochs 1"; else E="--lr 1"; fi\npython train.py $E\nE="--beta 1"\npython dpo.py $E\n',
            0,
        ),
        ('if [ $D ]; then L="torchrun --standalone"; else L="python"; fi\n$L train.py --lr 1\n', 0),
        ('S=train.py\nif [ $D ]; then S=dpo.py; E="--beta 1"; else E="--epochs 1"; fi\npython $S $E\n', 0),
    ],
)
def test_a_branch_adds_a_flag(tmp_path: Path, shell: str, found: int) -> None:
    result = audited(tmp_path, {**FILES, "run.sh": shell}, select=("CFG008",))
    assert len(result.findings) == found
