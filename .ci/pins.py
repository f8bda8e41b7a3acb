"""Print the exact versions of what the suite runs with, as `.ci/pins.txt` keeps them: `make pins`.

pip, and everything that `dynotune[test,dev,docs]` leads to in the environment that runs this, but PyTorch, which the
Makefile names, and what PyTorch brings for its GPU.
"""

import importlib.metadata
import re

from packaging.requirements import Requirement

LEFT_OUT = re.compile(r"torch|triton|nvidia-(?!ml-py$).*|cuda-.*")
EXTRAS = {"test", "dev", "docs"}


def name_of(text: str) -> str:
    return re.sub(r"[-_.]+", "-", text).lower()


def closure() -> dict[str, str]:
    found: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    todo: list[tuple[str, frozenset[str]]] = [("dynotune", frozenset(EXTRAS)), ("pip", frozenset())]
    while todo:
        name, extras = todo.pop()
        if (name, extras) in seen or LEFT_OUT.fullmatch(name):
            continue
        seen.add((name, extras))
        distribution = importlib.metadata.distribution(name)
        if name != "dynotune":
            found[name] = distribution.version
        for line in distribution.requires or ():
            one = Requirement(line)
            if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                todo.append((name_of(one.name), frozenset(one.extras)))
    return found


print("# What the suite runs with, exactly; written by `make pins`. Users get the ranges of pyproject.toml, which")
print("# `.ci/run wheel` installs without this file.")
for name, version in sorted(closure().items()):
    print(f"{name}=={version}")
