"""Promise: the flow is one-way. What a run is made of knows nothing of the loop that uses it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dynotune

SOURCE = Path(dynotune.__file__).parent
BELOW_THE_LOOP = ("config", "data", "execution", "measure", "model", "objectives", "plan", "reference")


def imports(code: str) -> Iterator[str]:
    """Modules that `code` imports anywhere, in functions and for types too."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)


def reaches_train(code: str) -> bool:
    return any(name.startswith("dynotune.train.") or name == "dynotune.train" for name in imports(code))


@pytest.mark.parametrize("part", BELOW_THE_LOOP)
def test_nothing_below_the_loop_imports_it(part: str) -> None:
    files = list((SOURCE / part).rglob("*.py"))
    assert files
    assert [str(path.relative_to(SOURCE)) for path in files if reaches_train(path.read_text())] == []


@pytest.mark.parametrize(
    "code",
    [
        "from dynotune.train.checkpoints.weights import save_model",
        "def f():\n    import dynotune.train.loop",
        "from dynotune import train",
        "if TYPE_CHECKING:\n    from dynotune.train import loop",
    ],
)
def test_every_way_of_importing_it_is_seen(code: str) -> None:
    assert reaches_train(code)
    assert not reaches_train(code.replace("train", "trainer"))
