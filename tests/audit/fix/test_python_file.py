"""Promise: a change of a script changes that argument and no other character, or nothing; it still parses."""

import ast
from pathlib import Path

import pytest

from dynotune.audit.change import Change, Edit
from dynotune.audit.fix.python_file import changed_python
from dynotune.audit.fix.splice import NotAppliedError
from dynotune.audit.place import Place
from dynotune.audit.read.python import read_script

TEXT = """\
from trl import SFTConfig  # the trainer

common = {'optim': 'adamw_torch',  # as in the paper
          "bf16": True}
RATE = 1e-5


def main():
    args = SFTConfig(
        output_dir="out",
        learning_rate=RATE,  # small
        seed = 7,  # last
        **common,
    )
    return SFTConfig(output_dir="é", seed=1), SFTConfig()
"""


def calls() -> list[Place]:
    return [call.place for call in read_script(Path("t.py"), TEXT, Path()).calls if call.name == "trl.SFTConfig"]


def argument(name: str, call: int = 0) -> Place:
    found = [call for call in read_script(Path("t.py"), TEXT, Path()).calls if call.name == "trl.SFTConfig"]
    return found[call].arguments[name].place


@pytest.mark.parametrize(
    ("edit", "name", "value", "to", "old", "new"),
    [
        (Edit.SET, "output_dir", "there", "", 'output_dir="out"', 'output_dir="there"'),
        (Edit.RENAME, "learning_rate", None, "rate", "learning_rate=RATE", "rate=RATE"),
        (Edit.SET, "seed", 8, "", "seed = 7,", "seed = 8,"),
        (Edit.SET, "optim", "adamw_torch_fused", "", "'adamw_torch'", "'adamw_torch_fused'"),
        (Edit.SET, "bf16", False, "", '"bf16": True', '"bf16": False'),
        (Edit.RENAME, "seed", None, "data_seed", "seed = 7,", "data_seed = 7,"),
        (Edit.RENAME, "bf16", None, "fp16", '"bf16": True', '"fp16": True'),
        (Edit.REMOVE, "seed", None, "", "seed = 7,  # last\n        ", ""),
    ],
)
def test_only_this_argument_changes(edit: Edit, name: str, value: object, to: str, old: str, new: str) -> None:
    assert old in TEXT
    after = changed_python(TEXT, Change(edit, argument(name), name, value, to))
    assert after == TEXT.replace(old, new, 1)


def test_an_argument_is_added_in_the_layout_of_the_others() -> None:
    many, one, none = calls()
    after = changed_python(TEXT, Change(Edit.SET, many, "packing", True))
    assert after == TEXT.replace("        **common,\n", "        **common,\n        packing=True,\n")
    after = changed_python(TEXT, Change(Edit.SET, one, "packing", ["a", 1.5]))
    assert after == TEXT.replace("seed=1)", 'seed=1, packing=["a", 1.5])').replace('["a"', "['a'")
    after = changed_python(TEXT, Change(Edit.SET, none, "packing", None))
    assert after == TEXT.replace("SFTConfig()", "SFTConfig(packing=None)")


@pytest.mark.parametrize(
    ("call", "then"),
    [
        ("f(\n    a=1  # one\n)", "f(\n    a=1,  # one\n    n=2\n)"),
        ("f(\n    a=1,  # one\n)", "f(\n    a=1,  # one\n    n=2,\n)"),
        ("f(a=1,\n  b=2)", "f(a=1,\n  b=2,\n  n=2)"),
        ("f(a=1, b=2,)", "f(a=1, b=2, n=2,)"),
        ("f(\n    a=1,\n    # of b\n    b=2,\n)", "f(\n    a=1,\n    # of b\n    b=2,\n    n=2,\n)"),
    ],
)
def test_layouts(call: str, then: str) -> None:
    lines = call.splitlines()
    place = Place("t.py", 1, 1, len(lines), len(lines[-1]) + 1)
    assert changed_python(f"{call}\n", Change(Edit.SET, place, "n", 2)) == f"{then}\n"


def test_an_argument_that_is_the_last_goes_with_its_comma() -> None:
    text = "f(\n    a=1,\n    b=2,\n)\ng(a=1, b=2)\n"
    assert changed_python(text, Change(Edit.REMOVE, Place("t.py", 3, 5, 3, 8), "b")) == "f(\n    a=1,\n)\ng(a=1, b=2)\n"
    assert changed_python(text, Change(Edit.REMOVE, Place("t.py", 5, 8, 5, 11), "b")).endswith("g(a=1)\n")


@pytest.mark.parametrize(
    "change",
    [
        Change(Edit.SET, Place("t.py", 1, 1, 1, 4), "nothing", 1),
        Change(Edit.SET, Place("t.py", 99, 1), "seed", 1),
        Change(Edit.SET, Place("t.py"), "seed", 1),
        Change(Edit.REMOVE, Place("t.py", 15, 12, 15, 44), "optim"),
    ],
)
def test_where_it_does_not_stand_nothing_changes(change: Change) -> None:
    with pytest.raises(NotAppliedError):
        changed_python(TEXT, change)


def test_what_is_no_python_or_no_literal_stays() -> None:
    with pytest.raises(NotAppliedError):
        changed_python("def (:\n", Change(Edit.SET, Place("t.py", 1, 1), "a", 1))
    with pytest.raises(NotAppliedError, match="literal"):
        changed_python(TEXT, Change(Edit.SET, calls()[0], "a", object()))
    with pytest.raises(NotAppliedError, match="already"):
        changed_python(TEXT, Change(Edit.SET, calls()[1], "seed", 2))


def test_it_parses_with_windows_line_ends() -> None:
    text = TEXT.replace("\n", "\r\n")
    after = changed_python(text, Change(Edit.SET, calls()[0], "packing", True))
    assert after == text.replace("        **common,\r\n", "        **common,\r\n        packing=True,\r\n")
    ast.parse(after)


@pytest.mark.parametrize("edit", [Edit.SET, Edit.REMOVE])
@pytest.mark.parametrize(
    "value",
    [
        "given.optim",
        "OPTIM",
        'os.environ.get("OPTIM", "adamw_torch")',
        "chosen()",
        '(o := "adamw_torch")',
        '"adamw_torch" if big else "sgd"',
        'f"adamw_{kind}"',
        "{**common}",
        "[OPTIM]",
    ],
)
def test_what_is_decided_elsewhere_stays(value: str, edit: Edit) -> None:
    text = f"args = SFTConfig(optim={value})\n"
    place = Place("t.py", 1, 18, 1, 18 + len(f"optim={value}"))
    with pytest.raises(NotAppliedError, match="no plain value"):
        changed_python(text, Change(edit, place, "optim", "x"))


def test_comments_and_brackets_around_a_value_stay() -> None:
    text = 'a = f(\n    optim=(  # why: é\n        "adam"  # and why not\n    ),\n)\n'
    place = Place("t.py", 2, 5, 4, 6)
    assert changed_python(text, Change(Edit.SET, place, "optim", "x")) == text.replace("adam", "x")
    text = 'f(\n    optim=("a"  # one\n           "b"),\n)\n'
    with pytest.raises(NotAppliedError, match="comment"):
        changed_python(text, Change(Edit.SET, Place("t.py", 2, 5, 3, 16), "optim", "x"))


def test_comments_of_the_neighbours_of_what_goes_stay() -> None:
    text = "f(\n    # of a\n    a=1,  # still of a\n    b=2,  # of b\n    # of c\n    c=3,\n)\n"
    assert changed_python(text, Change(Edit.REMOVE, Place("t.py", 4, 5, 4, 8), "b")) == text.replace(
        "    b=2,  # of b\n", ""
    )
    assert changed_python(text, Change(Edit.REMOVE, Place("t.py", 6, 5, 6, 8), "c")) == text.replace("    c=3,\n", "")
    shared = "f(a=1,  # of both\n  b=2)\n"
    with pytest.raises(NotAppliedError, match="comment"):
        changed_python(shared, Change(Edit.REMOVE, Place("t.py", 1, 3, 1, 6), "a"))
    assert changed_python("f(a=1,)\n", Change(Edit.REMOVE, Place("t.py", 1, 3, 1, 6), "a")) == "f()\n"
