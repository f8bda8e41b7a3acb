"""A configuration turns off the pinned memory of a loader that feeds a GPU, in a program whose loop is a library's."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.ranks import last_part
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_ON_CPU = re.compile(r"accelerator[\"']?\s*[=:]\s*[\"']?(?:cpu|mps|tpu)\b")


def unpinned_by_configuration(script: Script, project: Project) -> Iterator[Said]:
    """`DataLoader(rows, **cfg.loader)` with `pin_memory: false`, or `pin_memory=False` itself, for Lightning's `Trainer`."""
    near = connected(script, project)
    if "DataLoader(" not in script.source or not any("ightning" in one.source for one in near):
        return
    configs = [one for one in project.configs if "pin_memory" in project.texts.get(one.file, "")]
    texts = [*(one.source for one in near), *(project.texts.get(one.file, "") for one in configs)]
    if any(_ON_CPU.search(one) for one in texts) or (project.environment is not None and project.environment.wsl):
        return
    for node in ast.walk(script.tree):
        if not isinstance(node, ast.Call) or last_part(node.func) != "DataLoader":
            continue
        for keyword in node.keywords:
            key = last_part(keyword.value) if keyword.arg in (None, "pin_memory") else ""
            wanted = f"{key}.pin_memory" if keyword.arg is None else key
            place = next((found for one in configs if key and (found := _off(one, wanted)) is not None), None)
            literal = (
                keyword.arg == "pin_memory" and isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            )
            if place is not None or literal:
                yield _finding(place or place_of(script, keyword.value), place_of(script, node))
                return


def _off(config: ConfigFile, wanted: str) -> Place | None:
    for path, place in config.places.items():
        if (path == wanted or path.endswith(f".{wanted}")) and config.at(path) is False:
            return place
    return None


def _finding(place: Place, loader: Place) -> Finding:
    return Finding(
        "`pin_memory` is off: each copy of a batch to the GPU goes through a buffer, and the host waits for it.",
        place=place,
        evidence=Evidence(Level.RESOLVED, {"pin_memory": False}),
        stake=Stake(AtStake.TIME, 0.0, 0.02, "batches of ids are small; more where images or long rows are copied"),
        remedy=Remedy(Risk.SAFE, "Set `pin_memory: true`.", measure="dynotune profile -- python train.py"),
        also=(loader,) if loader != place else (),
    )
