"""Promise: each parser of a file is judged by its own flags: several parsers, sub-commands, parsers of other functions."""

from pathlib import Path

import pytest

from dynotune.audit.read.launchers.accepts import Accepts, accepts
from dynotune.audit.read.python import read_script
from dynotune.audit.schema import Schemas
from tests.audit.made_up import audited

HEAD = """import argparse
import sys
from dataclasses import dataclass
from transformers import HfArgumentParser


@dataclass
class A:
    alpha: int = 1


@dataclass
class B:
    beta: int = 1


"""
REST = "x, rest = pre.parse_known_args()\n"
PRE = "pre = argparse.ArgumentParser(add_help=False)\npre.add_argument('--profile')\n"
MAIN = "main = argparse.ArgumentParser()\nmain.add_argument('--lr')\n"
SUB = (
    "main = argparse.ArgumentParser()\nmain.add_argument('--seed')\nsub = main.add_subparsers(dest='what')\n"
    "t = sub.add_parser('train', aliases=['fit'])\nt.add_argument('--lr')\n"
    "sub.add_parser('eval').add_argument('--split')\n"
)


def taken(body: str, *words: str) -> Accepts | None:
    script = read_script(Path("train.py"), HEAD + body, Path())
    assert script.tree.body, script.unread
    return accepts(script, {}, Schemas.of(), words)


def functions(of_one: str, of_other: str, runs: str) -> str:
    """Two parsers in two functions, and what runs."""

    def inside(text: str) -> str:
        return "".join(f"    {line}\n" for line in text.splitlines())

    return f"def one():\n{inside(of_one)}\n\ndef other():\n{inside(of_other)}\n\n{runs}\n"


OF_A = "p = HfArgumentParser(A)\n(a,) = p.parse_args_into_dataclasses()"
OF_B = "p = HfArgumentParser((B,))\n(b,) = p.parse_args_into_dataclasses()"
OF_LR = "p = argparse.ArgumentParser()\np.add_argument('--lr')\nargs = p.parse_args()"


@pytest.mark.parametrize(
    ("body", "words", "flags"),
    [
        # one behind another: the second takes what the first leaves
        (f"{PRE}{REST}{MAIN}args = main.parse_args(rest)", "", "profile lr"),
        (
            f"{PRE}{REST}p = HfArgumentParser(A)\n(a,) = p.parse_args_into_dataclasses(args=rest)",
            "",
            "profile alpha",
        ),
        (
            f"{PRE}{REST}sys.argv = [sys.argv[0], *rest]\n{MAIN}args = main.parse_args()",
            "",
            "profile lr",
        ),
        ("p = HfArgumentParser(A)\np.add_argument('--extra')\na, b = p.parse_args_into_dataclasses()", "", "alpha extra"),
        # one name, two parsers, one behind the other
        (f"{PRE}{REST}{MAIN.replace('main', 'pre')}args = pre.parse_args(rest)", "", "profile lr"),
        # in functions: those that a run reaches
        (functions(OF_A, OF_B, "other()"), "", "beta"),
        (functions(OF_A, OF_LR, "one()"), "", "alpha"),
        (functions(OF_A, OF_LR, "(one if sys.argv[0] == 'a' else other)()"), "", "alpha lr"),
        (functions(OF_A, OF_LR, "@record\ndef main():\n    one()"), "", "alpha"),
        (f"class Job:\n    def run(self):\n        {OF_LR.replace(chr(10), chr(10) + ' ' * 8)}\n\nJob().run()", "", "lr"),
        # groups, parents, functions that add, loops
        (f"{MAIN}g = main.add_argument_group('x')\ng.add_argument('--g')\nmain.parse_args()", "", "lr g"),
        (f"{PRE}{MAIN.replace('r()', 'r(parents=[pre])')}main.parse_args()", "", "profile lr"),
        (f"def more(p):\n    p.add_argument('--m')\n    return p\n\n{MAIN}main = more(main)\nmain.parse_args()", "", "lr m"),
        (f"def make():\n    {MAIN.replace(chr(10), chr(10) + '    ')}\n    return main\n\nmake().parse_args()", "", "lr"),
        (f"{PRE}{MAIN}for p in (pre, main):\n    p.add_argument('--both')\nmain.parse_args()", "", "lr both"),
        # sub-commands
        (f"{SUB}main.parse_args()", "train --lr 1", "seed lr"),
        (f"{SUB}main.parse_args()", "--seed 1 fit", "seed lr"),
        (f"{SUB}main.parse_args()", "eval", "seed split"),
        (f"{SUB}main.parse_args()", "", "seed lr split"),
        (f"{SUB}main.parse_args()", "--seed train eval", "seed lr split"),
        # what is no command line
        (f"{PRE}pre.parse_args([])\n{MAIN}main.parse_args()", "", "lr"),
    ],
)  # fmt: skip
def test_flags_are_those_of_the_parsers_that_a_run_asks(body: str, words: str, flags: str) -> None:
    found = taken(body, *words.split())
    assert found is not None
    assert found.flags == set(flags.split())
    assert found.closed


@pytest.mark.parametrize(
    "body",
    [
        f"{MAIN}args, rest = main.parse_known_args()",
        f"{PRE}x = pre.parse_known_args()[0]\n{MAIN}args = main.parse_args()",
        f"{MAIN}from_elsewhere(main)\nmain.parse_args()",
        f"{MAIN}main.parse_args()\nelsewhere.parser().parse_args()",
        f"{MAIN}main.add_argument(name)\nmain.parse_args()",
        "main = argparse.ArgumentParser(parents=[elsewhere.parser()])\nmain.add_argument('--lr')\nmain.parse_args()",
        f"{MAIN}sys.argv.remove('--debug')\nmain.parse_args()",
        f"{MAIN}del sys.argv[1]\nmain.parse_args()",
        f"{MAIN}sys.argv = filtered\nmain.parse_args()",
        f"{SUB}elsewhere.add(sub)\nmain.parse_args()",
        "p = HfArgumentParser(A)\n(a, x) = p.parse_args_into_dataclasses(return_remaining_strings=True)",
        "p = HfArgumentParser(A)\n(a,) = p.parse_yaml_file('a.yaml')",
        "p = HfArgumentParser(Elsewhere)\n(a,) = p.parse_args_into_dataclasses()",
    ],
)
def test_what_may_take_more_refuses_nothing(body: str) -> None:
    found = taken(body)
    assert found is not None
    assert not found.closed


@pytest.mark.parametrize(
    "body",
    [
        functions(OF_A, OF_LR, "args = from_elsewhere()"),
        MAIN,
        f"{PRE}pre.parse_args([])",
        "parser = 1\nparser.parse_args()",
    ],
)
def test_a_parser_that_no_run_asks_is_none(body: str) -> None:
    assert taken(body) is None


RUN = "python train.py --profile x --lr 1  # {}\npython train.py --lrr 1  # {}\n"


@pytest.mark.parametrize(("comment", "found"), [("", ["run.sh:2"]), ("dynotune: ignore[CFG008] taken by a fork", [])])
def test_a_flag_of_the_first_parser_is_not_refused_and_one_of_none_is(
    comment: str, found: list[str], tmp_path: Path
) -> None:
    script = f"{HEAD}{PRE}{REST}{MAIN}args = main.parse_args(rest)\nprint(x.profile, args.lr)\n"
    result = audited(tmp_path, {"train.py": script, "run.sh": RUN.format("", comment)}, select=("CFG008",))
    assert [f"{one.place.file}:{one.place.line}" for one in result.findings] == found
    assert len(result.suppressed) == 1 - len(found)


def test_a_sub_command_refuses_the_flags_of_another(tmp_path: Path) -> None:
    files = {"train.py": f"{HEAD}{SUB}main.parse_args()\n", "run.sh": "python train.py eval --lr 1\n"}
    (one,) = audited(tmp_path, files, select=("CFG008",)).findings
    assert one.message == "`train.py eval` has no flag `--lr`: its parser stops with an error."


@pytest.mark.parametrize(("of_train", "of_other", "found"), [("_fused", "", 0), ("", "_fused", 1)])
def test_defaults_are_those_of_the_parser_that_is_asked(
    of_train: str, of_other: str, found: int, tmp_path: Path
) -> None:
    """`--optim` of an evaluation's parser says nothing of the training's, wherever it stands."""
    parser = (
        "p = argparse.ArgumentParser()\np.add_argument('--optim', default='adamw_torch{}')\nargs = p.parse_args()\n{}"
    )
    train = parser.format(of_train, "Trainer('m', args=TrainingArguments(output_dir='o', optim=args.optim)).train()")
    other = parser.format(of_other, "print(args.optim)")
    head = f"from transformers import Trainer, TrainingArguments\n{HEAD}"
    for number, text in enumerate((functions(train, other, "one()"), functions(other, train, "other()"))):
        result = audited(tmp_path / str(number), {"train.py": head + text}, select=("OPT001",))
        assert len(result.findings) == found
