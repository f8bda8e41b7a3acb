"""Promise: a parser that may take more than its file shows refuses nothing, and no file makes the audit end or take long."""

import ast
from pathlib import Path

import pytest

from dynotune.audit.read.python.bindings import WORK
from dynotune.audit.read.python.parsers import Parsers, parsers_of
from tests.audit.made_up import audited

RUN = "python train.py train --lr 1 --foo 2\n"
IMPORTS = "import argparse\nimport utils\nfrom utils import add_model_args, fill, add_all\n"
LR = "parser = argparse.ArgumentParser()\nparser.add_argument('what')\nparser.add_argument('--lr')\n"


def refused(folder: Path, body: str, run: str = RUN) -> list[str]:
    files = {"train.py": f"{IMPORTS}{body}", "run.sh": run}
    return [one.message for one in audited(folder, files, select=("CFG008",)).findings]


ITSELF = [
    "def main():\n    global p\n    for i in range(2):\n        p = argparse.ArgumentParser(parents=[p])\n"
    "        p.add_argument('--lr')\n    p.parse_args()\n\nmain()\n",
    "a = argparse.ArgumentParser(parents=[b])\nb = argparse.ArgumentParser(parents=[a])\n"
    "b.add_argument('--lr')\nb.parse_args()\n",
    "def one():\n    return argparse.ArgumentParser(parents=[two()])\n\ndef two():\n"
    "    return argparse.ArgumentParser(parents=[one()])\n\np = one()\np.add_argument('--lr')\np.parse_args()\n",
    "def one():\n    return one().add_parser('train')\n\np = one()\np.add_argument('--lr')\np.parse_args()\n",
    f"{LR}for i in x:\n    sub = sub.add_parser('train')\nparser.parse_args()\n",
]


@pytest.mark.parametrize("body", ITSELF)
def test_a_parser_that_is_made_of_itself_ends_nothing_and_refuses_nothing(tmp_path: Path, body: str) -> None:
    assert not refused(tmp_path, body)
    for one in Parsers(ast.parse(body)).all:
        assert len(list(one.family())) <= 2


def test_parents_and_sub_commands_are_still_followed(tmp_path: Path) -> None:
    body = f"{LR.replace('r()', 'r(add_help=False)')}p = argparse.ArgumentParser(parents=[parser])\np.parse_args()\n"
    (one,) = refused(tmp_path, body)
    assert "`--foo`" in one


ADD_TRAIN = (
    "def add_train(sub):\n    sub = sub.add_parser('train')\n    sub.add_argument('--lr', type=float)\n\n"
    "parser = argparse.ArgumentParser()\nadd_train({})\nargs = parser.parse_args()\n"
)


@pytest.mark.parametrize(
    ("given", "run", "found"),
    [
        ("parser.add_subparsers()", "python train.py train --lr 1\n", 0),
        ("parser.add_subparsers()", RUN, 1),
        ("utils.of(parser)", RUN, 0),  # whose sub-command it is, is not known
    ],
)
def test_a_parameter_that_is_assigned_from_itself(tmp_path: Path, given: str, run: str, found: int) -> None:
    assert len(refused(tmp_path, ADD_TRAIN.format(given), run)) == found


LOCAL = "def add_args(p):\n    p.add_argument('--more')\n\n"


@pytest.mark.parametrize(
    "leaves",
    [
        "add_model_args(parser.add_argument_group('model'))",
        "add_all([parser])",
        "add_all(*[parser])",
        "add_all({'p': [parser]})",
        "add_all(**{'p': parser})",
        "fill(to={'group': parser.add_argument_group('g')})",
        "o.add_to(group=parser.add_argument_group(t))",
        "utils.add_args(parser)",
        "utils.sub.Of().add_args(parser)",
        "o.add_args(parser)",
        "add_args(*[parser])",
        "held = [parser]\nadd_all(held)",
        "held = {}\nheld['a'] = parser\nadd_all(held)",
        "held = []\nheld.append(parser)\nadd_all(held)",
        "add_all(lambda: parser)",
        "add_all(q for q in [parser])",
        "add = parser.add_argument\nadd('--foo')",
        "fill(parser.add_argument)",
        "class Mine(utils.Base):\n    def __init__(self, p):\n        super().__init__(p)\n\nMine(parser)",
    ],
)
def test_a_parser_that_leaves_the_file_refuses_nothing(tmp_path: Path, leaves: str) -> None:
    assert not refused(tmp_path, f"{LOCAL}{LR}{leaves}\nparser.parse_args()\n")


@pytest.mark.parametrize(
    "stays",
    [
        "pass",
        "add_args(parser)",
        "add_args(p=parser.add_argument_group('g'))",
        "print(str(parser), [parser])",
        "args = parser.parse_args()\nfill(args)\nutils.run(parser.parse_args())",
        "class Mine:\n    def add_args(self, p):\n        p.add_argument('--x')\n\n    def all(self, q):\n"
        "        self.add_args(q)\n\nMine().all(parser)",
        "class Mine:\n    def __init__(self, p):\n        p.add_argument('--x')\n\nMine(parser)",
    ],
)
def test_a_parser_that_stays_refuses_what_it_does_not_take(tmp_path: Path, stays: str) -> None:
    (one,) = refused(tmp_path, f"{LOCAL}{LR}{stays}\nparser.parse_args()\n")
    assert "`--foo`" in one


HELD = "import argparse; p = argparse.ArgumentParser()\n{}p.parse_args()\n"
SHAPES = {
    "anew": "x = f(x)\n",
    "of a parser": "p.add_argument('--a')\n",
    "handed on": "p = f(p)\n",
    "local": "add(p)\n",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_grows_with_the_file(shape: str) -> None:
    def work(lines: int) -> int:
        parsers = Parsers(ast.parse("def add(q):\n    q.add_argument('--x')\n\n" + HELD.format(SHAPES[shape] * lines)))
        assert parsers.asked() or shape == "handed on"
        return parsers.work

    assert work(4_000) < 5 * work(1_000) < WORK


@pytest.mark.parametrize("body", ["if c: x = f(x)\n", "if c: p = argparse.ArgumentParser()\np.add_argument('--a')\n"])
def test_a_file_that_asks_too_much_is_not_judged(body: str) -> None:
    parsers = Parsers(ast.parse(HELD.format(body * 4_000)))
    assert (parsers.all, parsers.unknown_parses) == ([], True)
    assert parsers.work <= 2 * WORK
    assert Parsers(ast.parse(HELD.format(body * 20))).asked(), "the control: a file of the usual size is"


def test_a_recursion_that_is_too_deep_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    def deep(_: Parsers) -> None:
        raise RecursionError

    tree = ast.parse(HELD.format(""))
    assert Parsers(tree).asked()
    monkeypatch.setattr(Parsers, "_related", deep)
    assert Parsers(tree).unknown_parses
    assert not Parsers(tree).asked()


def test_no_answer_is_of_a_search_that_was_cut_off(tmp_path: Path) -> None:
    """A long way, and a way that comes back: the same answer from wherever it is asked."""
    long = "a0 = argparse.ArgumentParser()\n" + "".join(f"a{i + 1} = a{i}\n" for i in range(40))
    body = f"{long}a20.add_argument('what')\na40.add_argument('--lr')\na40.parse_args()\n"
    (one,) = refused(tmp_path, body)
    assert "`--foo`" in one
    back = (
        "def f(n):\n    if n: return g(n)\n    return argparse.ArgumentParser()\n\ndef g(n):\n    return f(n - 1)\n\n"
    )
    parsers = Parsers(
        ast.parse(f"{back}a = g(1)\nb = f(1)\na.add_argument('--x')\nb.add_argument('--y')\nb.parse_args()\n")
    )
    (held,) = parsers.asked()
    assert len(held.adds) == 2
    assert not parsers.stray


def test_a_file_is_worked_out_once() -> None:
    tree = ast.parse(HELD.format(""))
    assert parsers_of(tree) is parsers_of(tree)
