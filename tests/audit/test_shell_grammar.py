"""Promise: no text of a shell script ends the process, and what is read of it is what stands there."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from dynotune.audit.read.launchers import read_launches
from dynotune.audit.shell_grammar import parse_shell, text_of

ODD = "<{[(|&;$`'\"\\#=~!* \n\t" + "ab\u00e9\u4e2d\U0001f600\U0010ffff"


def test_text_is_cut_from_the_true_source() -> None:
    source = 'python train.py --name "caf\u00e9 \U0010ffff" # r\u00e9sum\u00e9'.encode()
    root = parse_shell(source)
    assert text_of(root, source).encode() == source
    (comment,) = (node for node in root.children if node.type == "comment")
    assert text_of(comment, source) == "# r\u00e9sum\u00e9"


def test_words_keep_letters_of_any_language(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    (launch,) = read_launches(path, 'python train.py --out "caf\u00e9" --note \U0001f600\n', tmp_path)
    assert launch.flags["out"].value == "caf\u00e9"
    assert launch.flags["note"].value == "\U0001f600"


def test_any_text_leaves_the_process_alive() -> None:
    """In a process of its own, which a fault of the parser would end."""
    texts = random.Random(0)
    some = ["<{\U0010ffff[", *("".join(texts.choices(ODD, k=40)) for _ in range(2000))]
    code = (
        "import json, sys\nfrom dynotune.audit.shell_grammar import parse_shell\n"
        "for text in json.load(sys.stdin):\n    parse_shell(text.encode())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(some), text=True, capture_output=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-500:]


@pytest.mark.skipif(sys.platform != "linux", reason="what lies behind C's tables differs by system")
def test_the_grammar_alone_would_not() -> None:
    """A control: without the mask this ends the process, or is mended in the grammar and the mask can go."""
    code = (
        "import tree_sitter, tree_sitter_bash\n"
        "parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))\n"
        "parser.parse('<{\\U0010ffff['.encode())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300)
    if done.returncode == 0:
        pytest.skip("this grammar reads it, here")
    assert done.returncode < 0
