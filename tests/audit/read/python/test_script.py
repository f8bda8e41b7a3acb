"""Promise: a script is read as it stands, its names and constants are followed, and nothing in it can crash or run."""

import json
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.setting import Known, Unknown
from dynotune.audit.read.python import decoded, read_script

ROOT = Path("project")


def read(text: str, name: str = "train.py") -> Script:
    return read_script(ROOT / name, textwrap.dedent(text), ROOT)


def one(script: Script, name: str) -> Call:
    (call,) = script.calls_of(name)
    return call


def value_of(expression: str, before: str = "") -> object:
    script = read(f"{textwrap.dedent(before)}\nshow({expression})\n")
    return one(script, "show").arguments["0"].value


def test_names_are_followed_through_imports_and_aliases() -> None:
    script = read(
        """
        import torch.nn.functional as F
        import torch
        from trl import SFTConfig as Config
        optim = torch.optim
        F.cross_entropy(a, b)
        optim.AdamW(p, fused=True)
        Config("out", seed=1)
        accelerator = __import__("x")
        """
    )
    names = [call.name for call in script.calls]
    assert names[:3] == ["torch.nn.functional.cross_entropy", "torch.optim.AdamW", "trl.SFTConfig"]
    made = one(script, "trl.SFTConfig")
    assert made.arguments["output_dir"].value == "out"
    assert made.arguments["seed"].place.key == "seed"


def test_methods_carry_the_class_that_made_their_object_and_what_they_are_called_on() -> None:
    script = read("from accelerate import Accelerator\na = Accelerator()\na.backward(x)\noutputs.loss.item()\n")
    assert one(script, "backward").name == "accelerate.Accelerator.backward"
    item = one(script, "item")
    assert (item.name, item.on) == (".item", "outputs.loss")


@pytest.mark.parametrize(
    ("expression", "before", "value"),
    [
        ("2e-5 * 4", "", 8e-5),
        ("BATCH // MICRO", "BATCH, MICRO = 64, 4", 16),
        ("f'{NAME}-{2}'", "NAME = 'run'", "run-2"),
        ("max(1, 8 // 16)", "", 1),
        ("torch.bfloat16", "import torch", "bfloat16"),
        ("getattr(torch, 'bfloat16')", "import torch", "bfloat16"),
        ("CONFIG['lr']", "CONFIG = {'lr': 1, **{'b': 2}}", 1),
        ("CONFIG['b']", "CONFIG = {'lr': 1}\nCONFIG.update(b=3)", 3),
        ("dict(a=1, b=[1, 2])", "", {"a": 1, "b": [1, 2]}),
        ("os.environ.get('LR', '1e-4')", "import os", "1e-4"),
        ("float(os.getenv('LR', '1e-4'))", "import os", 1e-4),
        ("made()", "def made(lr=3):\n    return lr * 2", 6),
        ("made(5)", "def made(lr=3):\n    return lr * 2", 10),
        ("C.lr", "class C:\n    lr = 4", 4),
        ("C().lr", "from dataclasses import dataclass\n@dataclass\nclass C:\n    lr: float = 4.0", 4.0),
        ("C(lr=5.0).lr", "from dataclasses import dataclass\n@dataclass\nclass C:\n    lr: float = 4.0", 5.0),
        ("x", "x = 1\nx *= 8", 8),
        ("x", "x = 1\nif False:\n    x = 2", 1),
        ("1 if 2 > 1 else 3", "", 1),
        ("'cuda' if torch.cuda.is_available() else 'cpu'", "import torch", "cuda"),
        ("(a := 5)", "", 5),
        ("x or 7", "x = 0", 7),
        ("Path('conf') / 'a.yaml'", "from pathlib import Path", "conf/a.yaml"),
    ],
)
def test_constants_are_followed(expression: str, before: str, value: object) -> None:
    assert value_of(expression, before) == value


@pytest.mark.parametrize(
    ("expression", "before", "why"),
    [
        ("input()", "", "when the script runs"),
        ("x", "", "not given a value"),
        ("f(1)", "def f(n):\n    return f(n)", ""),
        ("x", "x = y\ny = x", ""),
        ("9 ** 9 ** 9", "", "too large"),
        ("'a' * 10 ** 9", "", "no numbers"),
        ("1 / 0", "", "fails"),
        ("os.environ['HOME']", "import os", "environment variable `HOME`"),
        ("int(os.environ.get('WORLD_SIZE', 1))", "import os", "launcher sets `WORLD_SIZE`"),
        ("x", "for x in range(3):\n    pass", "round of a loop"),
        ("__import__('os').system('touch hacked')", "", ""),
    ],
)
def test_what_reading_cannot_tell_is_unknown_with_the_reason(expression: str, before: str, why: str) -> None:
    value = value_of(expression, before)
    assert isinstance(value, Unknown)
    assert why in value.why


def test_conditions_give_other_values() -> None:
    script = read("x = 1\nif flag():\n    x = 2\nshow(x)\ny = 3 if flag() else 4\nother(y)\n")
    x = one(script, "show").arguments["0"]
    assert (x.value, x.others, x.known) == (1, (2,), Known.FOLLOWED)
    y = one(script, "other").arguments["0"]
    assert isinstance(y.value, Unknown)
    assert set(y.others) == {3, 4}


def test_a_command_lines_defaults_are_followed_and_name_their_flag() -> None:
    script = read(
        """
        import argparse
        def parse():
            parser = argparse.ArgumentParser()
            parser.add_argument("--lr", "-l", type=float, default="2e-5")
            parser.add_argument("--packing", action="store_true")
            parser.add_argument("--model", required=True)
            return parser.parse_args()
        def main():
            args = parse()
            args.seed = 7
            show(args.lr, args.packing, args.model, args.seed)
        """
    )
    lr, packing, model, seed = one(script, "show").arguments.values()
    assert (lr.value, packing.value, seed.value) == (2e-5, False, 7)
    assert any(place.key == "--lr" for place in lr.via)
    assert isinstance(model.value, Unknown)
    assert script.constants["--lr"].value == 2e-5


def test_arguments_of_functions_come_from_their_calls() -> None:
    script = read("def run(lr, n=2):\n    show(lr, n)\nrun(1e-4)\n")
    assert [setting.value for setting in one(script, "show").arguments.values()] == [1e-4, 2]
    twice = read("def run(lr):\n    show(lr)\nrun(1)\nrun(2)\n")
    setting = one(twice, "show").arguments["0"]
    assert isinstance(setting.value, Unknown)
    assert setting.others == (1, 2)


def test_places_count_characters_not_bytes() -> None:
    script = read("x = 'ééé'; show(1)\n")
    place = one(script, "show").place
    assert script.source[place.column - 1 : place.end_column - 1] == "show(1)"


LOOP = """
def step(batch):
    loss = model(batch)
    helper(loss)
    return loss

def helper(loss):
    deep(loss)

for epoch in range(3):
    once_an_epoch()
    for i, batch in enumerate(loader):
        loss = step(batch)
        loss.backward()
        each()
        if accelerator.is_main_process:
            main()
        if i % 10 == 0:
            sometimes()
            continue
        if i > 3:
            continue
        rarely()
    for batch in validation:
        evaluate(batch)

class Layer(nn.Module):
    def forward(self, x):
        inside(x)
        if self.training:
            perhaps(x)

    def other(self, x):
        outside(x)
"""


def test_what_runs_at_each_step() -> None:
    script = read(LOOP)
    stands = {call.name: (call.in_training_loop, call.each_step) for call in script.calls}
    assert stands["each"] == stands["main"] == stands["step"] == stands["model"] == (True, True)
    assert stands["helper"] == (True, True)  # one level down is followed
    assert stands["deep"] == (False, False)  # two are not
    assert stands["sometimes"] == stands["rarely"] == (True, False)
    assert stands["once_an_epoch"] == stands["evaluate"] == stands["outside"] == (False, False)
    assert stands["inside"] == (True, True)
    assert stands["perhaps"] == (True, False)


def test_notebooks_are_read_by_their_code_cells() -> None:
    cells = [
        {"cell_type": "markdown", "source": "show(0)"},
        {
            "cell_type": "code",
            "source": ["%load_ext x\n", "!pip install trl\n", "files = !ls\n", "if True:\n", "    !ls\n"],
        },
        {"cell_type": "code", "source": "%%bash\nshow(1)"},
        {"cell_type": "code", "source": "show(2)"},
    ]
    script = read(json.dumps({"cells": cells}), "a.ipynb")
    assert not script.unread
    assert [call.arguments["0"].value for call in script.calls_of("show")] == [2]
    assert read("{", "a.ipynb").unread


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("print 'hello'\n", "Python 2"),
        ("def f(:\n", "does not parse"),
        ("x = 1\0\n", "null bytes"),
        ("(" * 5000, "nested"),
        ("[" * 400 + "]" * 400, "nested"),
        ("-" * 5000 + "1", ""),
        ("x = " + "+".join(["1"] * 300), "nested"),
        ("x = " + "+".join(["1"] * 50_000), "nested"),
        ("a" + ".b" * 5000, "nested"),
        ("x = 1\n" * 700_000, "characters"),
        ("\n".join(" " * n + "if x:" for n in range(400)) + "\n" + " " * 400 + "pass", "nested"),
        ("lambda: " * 3000 + "1", ""),
        ("x = " + "9" * 10_000, ""),
    ],
)
def test_what_cannot_be_read_is_said(text: str, why: str) -> None:
    script = read_script(ROOT / "a.py", text, ROOT)
    assert len(script.unread) == 1
    assert why in script.unread[0]
    assert not script.calls


def test_encodings() -> None:
    assert decoded("é = 1".encode("utf-8-sig")) == "é = 1"
    assert decoded("# -*- coding: latin-1 -*-\nx = 'é'".encode("latin-1")) == "# -*- coding: latin-1 -*-\nx = 'é'"
    assert decoded("x = 1".encode("utf-16")) == "x = 1"
    assert decoded(b"\x7fELF\0\0") is None
    assert decoded(b"# coding: nonsense\nx") == "# coding: nonsense\nx"
    assert decoded(b"# coding: rot13\nx") == "# coding: rot13\nx"
    assert read("\ufeffshow(1)\r\n\tif").unread
    assert read("\ufeffshow(1)\r\n").calls


FRAGMENTS = st.sampled_from(
    [
        "x",
        "=",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ":",
        "\n",
        "\n    ",
        "\n\t",
        "for x in y:",
        "def f(a=1):",
        "class A(B):",
        "if a:",
        "else:",
        "lambda",
        "*",
        "**",
        ".",
        ",",
        "'",
        '"""',
        "f'{",
        "1",
        "yield",
        "await",
        "import a.b as c",
        "return",
        "\0",
        "\\",
        "@",
        "x.backward()",
        ":=",
        "match x:",
        "case _:",
        "#",
        "é",
        "\ud800",
        "\x0c",
        "\r",
        "self.x",
        "del x",
        "x[1] = 2",
        "%magic",
    ]
)


TEXTS = st.lists(FRAGMENTS, max_size=30).map("".join) | st.text(max_size=60)


def does_not_crash(text: str, name: str) -> None:
    for each in (text, json.dumps({"cells": [{"cell_type": "code", "source": text}]})):
        script = read_script(ROOT / name, each, ROOT)
        assert all(isinstance(dict(call.arguments), dict) for call in script.calls)


@settings(max_examples=60, deadline=None)
@given(TEXTS, st.sampled_from(["a.py", "a.ipynb"]))
def test_no_text_crashes_the_reader(text: str, name: str) -> None:
    does_not_crash(text, name)


@pytest.mark.long
@settings(max_examples=3000, deadline=None)
@given(TEXTS, st.sampled_from(["a.py", "a.ipynb"]))
def test_no_text_at_all_crashes_the_reader(text: str, name: str) -> None:
    does_not_crash(text, name)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=80))
def test_no_bytes_crash_the_decoder(data: bytes) -> None:
    text = decoded(data)
    assert text is None or isinstance(text, str)
