"""DeepSpeed's configuration has it print at every step, or time the parts of every step."""

import ast
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import reached
from dynotune.audit.place import Place

_KEYS: Mapping[str, object] = {"steps_per_print": 1, "wall_clock_breakdown": True}


def printed_by_deepspeed(job: Job, project: Project) -> list[tuple[str, Place]]:
    """Each such key of the configurations and dictionaries of the job's program."""
    if not any(key in text for text in project.texts.values() for key in _KEYS):
        return []
    return list(_of_configurations(job, project)) or list(_of_dictionaries(job, project))


def _of_configurations(job: Job, project: Project) -> Iterator[tuple[str, Place]]:
    for config in project.configs:
        if config.file not in job.files and not any(config.file in launch.words for launch in project.launches):
            continue
        for path, place in config.places.items():
            key = path.rpartition(".")[2]
            if key in _KEYS and _is_on(config.at(path), key):
                yield key, place


def _is_on(value: object, key: str) -> bool:
    return type(value) is type(_KEYS[key]) and value == _KEYS[key]


def _of_dictionaries(job: Job, project: Project) -> Iterator[tuple[str, Place]]:
    first = [one for one in project.scripts if one.file in job.files]
    scripts = {one.file: one for script in first for one in reached(script, project)}
    if not any("deepspeed" in one.source for one in scripts.values()):
        return
    for script in scripts.values():
        if any(key in script.source for key in _KEYS):
            yield from _of_a_script(script)


def _of_a_script(script: Script) -> Iterator[tuple[str, Place]]:
    for node in ast.walk(script.tree):
        pairs: list[tuple[str, ast.expr]] = []
        if isinstance(node, ast.Dict):
            pairs = [
                (str(key.value), value)
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant)
            ]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "dict":
            pairs = [(word.arg, word.value) for word in node.keywords if word.arg]
        for key, value in pairs:
            if key in _KEYS and isinstance(value, ast.Constant) and _is_on(value.value, key):
                yield key, place_of(script, value)
