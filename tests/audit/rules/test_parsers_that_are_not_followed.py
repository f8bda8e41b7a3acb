"""Parsers of other files that cannot be told, and those of absl that other words or libraries take part in."""

from collections import Counter
from pathlib import Path

import pytest

from dynotune.audit.read.launchers import parser_elsewhere
from dynotune.audit.read.launchers.parser_elsewhere import with_its_parser
from dynotune.audit.read.python import read_script
from tests.audit.made_up import audited

ARGS = (
    "import argparse\n\n\ndef get_args():\n    p = argparse.ArgumentParser()\n    p.add_argument('--lr')\n"
    "    return p.parse_args()\n"
)
USES = "{}\nargs = get_args()\nprint(args.lr)\n"
PLAIN = USES.format("from args import get_args")
EITHER = USES.format("if slow:\n    from args import get_args\nelse:\n    from args2 import get_args")
TRIES = USES.format("try:\n    from local import get_args\nexcept ImportError:\n    from args import get_args")
RUN = "python {}train.py --lr 1 --epochs 3\n"
ABSL = (
    "from absl import app, flags\n{}\nFLAGS = flags.FLAGS\nflags.DEFINE_float('lr', 1e-4, '')\n\n\n"
    "def main(_):\n    print(FLAGS.lr)\n\n\napp.run(main{})\n"
)
CYCLES = [
    {"train.py": "from x import f\nargs = f()\n", "x.py": "from y import f\n", "y.py": "from x import f\n"},
    {
        "train.py": "from pkg.x import f\nargs = f()\n",
        "pkg/__init__.py": "",
        "pkg/x.py": "try:\n    from .y import f\nexcept ImportError:\n    def f(): pass\n",
        "pkg/y.py": "from .x import f\n",
    },
    {
        "train.py": "from a import f\nf()\n",
        "a.py": "from b import f\n",
        "b.py": "from c import f\n",
        "c.py": "from b import f\n",
    },
]


LOOP = (
    "import torch\n{}\nmodel = torch.nn.Linear(2, 2)\nopt = torch.optim.SGD(model.parameters(), 1e-2)\n"
    "for epoch in range(3):\n    for x in [torch.ones(2)]:\n        loss = model(x).sum()\n        loss.backward()\n"
    "        opt.step()\n        opt.zero_grad()\ntorch.save(model.state_dict(), 'm.pt')\n"
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("from lightning.pytorch.cli import LightningCLI\nLightningCLI()", True),
        ("from jsonargparse import CLI\nCLI(main)", True),
        ("from x import CLI\nCLI()", False),
    ],
)
def test_whose_cli_makes_a_program(tmp_path: Path, text: str, says: bool) -> None:
    found = audited(tmp_path, {"train.py": LOOP.format(text)}, select=["CKP002"]).findings
    assert any("Nothing is saved before" in one.message for one in found) is says


def refused(folder: Path, files: dict[str, str]) -> bool:
    return any("`--epochs`" in one.message for one in audited(folder, files, select=["CFG008"]).findings)


@pytest.mark.parametrize("files", CYCLES)
def test_files_that_import_a_name_from_each_other(tmp_path: Path, files: dict[str, str]) -> None:
    assert not refused(tmp_path, {"run.sh": RUN.format(""), "args.py": ARGS, **files})


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"run.sh": RUN.format(""), "train.py": PLAIN, "args.py": ARGS}, True),
        ({"run.sh": RUN.format("s/"), "s/train.py": PLAIN, "s/args.py": ARGS, "old/args.py": "x = 1\n"}, True),
        ({"run.sh": RUN.format("s/"), "s/train.py": PLAIN, "src/args.py": ARGS}, True),
        ({"run.sh": RUN.format(""), "train.py": PLAIN, "old/args.py": ARGS}, False),
        ({"run.sh": RUN.format(""), "train.py": EITHER, "args.py": ARGS, "args2.py": ARGS}, False),
        ({"run.sh": RUN.format(""), "train.py": EITHER, "args.py": ARGS}, False),
        ({"run.sh": RUN.format(""), "train.py": TRIES, "args.py": ARGS}, False),
        (
            {"run.sh": RUN.format(""), "train.py": PLAIN + "from absl.flags import argparse_flags\n", "args.py": ARGS},
            False,
        ),
        ({"run.sh": "python train.py --lr 1 -- --epochs 3\n", "train.py": PLAIN, "args.py": ARGS}, False),
    ],
)
def test_which_file_an_import_means(tmp_path: Path, files: dict[str, str], says: bool) -> None:
    assert refused(tmp_path, files) is says


@pytest.mark.parametrize(
    ("text", "run", "says"),
    [
        (ABSL.format("import torch", ""), RUN.format(""), True),
        (ABSL.format("", ", flags_parser=lambda a: FLAGS(a, known_only=True)"), RUN.format(""), False),
        (ABSL.format("from my_models import net", ""), RUN.format(""), False),
        (ABSL.format("import tensorflow_datasets as tfds", ""), RUN.format(""), False),
        (ABSL.format("getattr(flags, 'DEFINE_integer')(name, 3, '')", ""), RUN.format(""), False),
        (ABSL.format("", ""), "python train.py --lr 1 -- --epochs 3\n", False),
    ],
)
def test_flags_of_absl(tmp_path: Path, text: str, run: str, says: bool) -> None:
    assert refused(tmp_path, {"run.sh": run, "train.py": text}) is says


def test_a_file_is_read_once_at_each_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On how many paths it is reached does not matter."""
    texts = {
        f"m{one}.py": "".join(f"import m{other}\n" for other in range(one + 1, min(one + 7, 12)))
        + "".join(f"m{other}.f()\n" for other in range(one + 1, min(one + 7, 12)))
        + ARGS
        for one in range(12)
    }
    for file, text in texts.items():
        (tmp_path / file).write_text(text)
    scripts = {file: read_script(tmp_path / file, text, tmp_path) for file, text in texts.items()}
    counted: Counter[str] = Counter()
    read = parser_elsewhere._Followed._read

    def counting(self: parser_elsewhere._Followed, script: parser_elsewhere.Script, depth: int):  # type: ignore[no-untyped-def]
        counted[f"{script.file} {depth}"] += 1
        return read(self, script, depth)

    monkeypatch.setattr(parser_elsewhere._Followed, "_read", counting)
    with_its_parser(scripts["m0.py"], scripts)
    assert counted
    assert max(counted.values()) == 1
