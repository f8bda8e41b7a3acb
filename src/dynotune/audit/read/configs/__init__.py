"""Configuration files of every trainer as `ConfigFile`, and the jobs that they make."""

from pathlib import Path
from typing import Any

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.job import Job
from dynotune.audit.read.configs.interpolation import has_references, resolved
from dynotune.audit.read.configs.job import job_of
from dynotune.audit.read.configs.json_text import read_json
from dynotune.audit.read.configs.parsed import NotReadableError, Parsed
from dynotune.audit.read.configs.recognise import kind_of
from dynotune.audit.read.configs.toml_text import read_toml
from dynotune.audit.read.configs.yaml_text import read_yaml

__all__ = ["PERHAPS_JSON", "SUFFIXES", "Job", "NotReadableError", "job_of", "read_config"]

SUFFIXES = frozenset({".yaml", ".yml", ".json", ".toml"})
PERHAPS_JSON = frozenset({".conf", ".config"})
"""Endings of files of many kinds, some of which are DeepSpeed's JSON."""


def read_config(path: Path, text: str, root: Path) -> ConfigFile | None:
    """The configuration that a file holds; None where it holds no mapping, so is none.

    Args:
        path: of the file; its suffix tells the notation, YAML where it has another one.
        root: the folder that places are relative to.

    Raises:
        NotReadableError: the text is none of its notation, or more than a configuration can be.
    """
    file = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
    parsed = _parsed(file, path.suffix.lower(), text)
    values: Any = parsed.values
    if not isinstance(values, dict):
        return None
    if has_references(values):
        values = resolved(values)
    return ConfigFile(file, kind_of(file, values), values, parsed.places, parsed.comments, parsed.repeated)


def _parsed(file: str, suffix: str, text: str) -> Parsed:
    if suffix == ".json" or suffix in PERHAPS_JSON:
        return read_json(file, text)
    return read_toml(file, text) if suffix == ".toml" else read_yaml(file, text)
