"""Jobs that a Python file hands to a cloud: the estimators of SageMaker, whose `hyperparameters` are the flags of the script
that `entry_point` names, in `source_dir`."""

import posixpath
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.setting import Setting
from dynotune.audit.place import Place
from dynotune.audit.read.launchers import read_launches
from dynotune.audit.read.python.evaluator import Evaluator
from dynotune.audit.read.python.modules import Modules
from dynotune.audit.read.python.value import Value


def asks_an_estimator(source: str) -> bool:
    return "sagemaker" in source and "entry_point" in source


def commands_of_estimators(
    root: Path, scripts: Mapping[str, Script], modules: Modules, configs: Mapping[str, ConfigFile]
) -> Iterator[Launch]:
    for name, script in scripts.items():
        if not asks_an_estimator(script.source) or name not in modules:
            continue
        evaluator = Evaluator(modules[name], modules, configs)
        for site in evaluator.module.sites:
            words = {word.arg: word.value for word in site.node.keywords if word.arg}
            if "entry_point" not in words:
                continue
            known: dict[str, Value] = {
                key: evaluator.fresh().value(words[key], site.scope)
                for key in ("entry_point", "source_dir", "hyperparameters", "environment", "distribution")
                if key in words
            }
            launch = _launch(root, name, site.node.lineno, known)
            if launch is not None and launch.script in scripts:
                yield launch


def _launch(root: Path, file: str, line: int, known: Mapping[str, Value]) -> Launch | None:
    entry, folder = (_text(known.get(key)) for key in ("entry_point", "source_dir"))
    if not entry.endswith(".py"):
        return None
    path = posixpath.join(folder, entry) if folder else entry
    given = [(key, one) for key, one in _items(known.get("hyperparameters")).items() if one.is_known]
    spread = known.get("distribution")
    starts = (
        ["python"] if spread is None or spread.value is None else ["torchrun", "--nproc_per_node", "${SM_NUM_GPUS}"]
    )
    words = [*starts, path, *(word for key, one in given for word in (f"--{key}", str(one.value)))]
    command = shlex.join(words).replace("'${SM_NUM_GPUS}'", "${SM_NUM_GPUS}")
    read = next(iter(read_launches(root / file, "\n" * (line - 1) + command, root)), None)
    if read is None:
        return None
    own = {key.replace("-", "_"): one.place for key, one in given if one.place is not None}
    flags = {key: replace(one, place=own.get(key, one.place)) for key, one in read.flags.items()}
    variables = {
        key: Setting(key, one.value, one.place or Place(file, line), given_value=str(one.value))
        for key, one in _items(known.get("environment")).items()
        if one.is_known
    }
    return replace(read, flags=flags, variables=variables)


def _text(value: Value | None) -> str:
    return value.value if value is not None and isinstance(value.value, str) else ""


def _items(value: Value | None) -> dict[str, Value]:
    held = value.value if value is not None else None
    items = held.items() if isinstance(held, dict) else ()
    return {key: one for key, one in items if isinstance(key, str) and isinstance(one.value, str | int | float)}
