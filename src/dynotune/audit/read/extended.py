"""What a project adds to a trainer: fields of its own dataclasses, and scripts that read configurations in their own way."""

import re
from collections.abc import Mapping
from dataclasses import replace

from dynotune.audit.facts.job import Fate, Job, Trainer
from dynotune.audit.facts.script import Script

_FIELD = re.compile(r"^(?:    |\t)([a-z_]\w*)\s*:\s*[^=\n]+(?:=|$)", re.MULTILINE)
_READS = re.compile(
    r"yaml\.(?:safe_|full_)?load\(|YAML\(|OmegaConf\.load|json\.load\(|tomllib?\.load|parse_yaml_file|parse_json_file"
    r"|hydra\.main|parse_dict\("
)
_EXTENDED = frozenset({Trainer.TRL, Trainer.TRANSFORMERS})


def own_fields(scripts: Mapping[str, Script]) -> frozenset[str]:
    """Names of the fields of dataclasses in a project's files."""
    found: set[str] = set()
    for script in scripts.values():
        if "@dataclass" in script.source or "@dataclasses.dataclass" in script.source:
            found |= set(_FIELD.findall(script.source))
    return frozenset(found)


def reads_configurations(script: Script) -> bool:
    """Whether a script opens YAML, JSON or TOML by itself: what keys mean is then for the script to say."""
    return _READS.search(script.source) is not None


def leniently(job: Job) -> Job:
    """A file's job where a script of the project may read the file: keys that are nobody's may be the script's."""
    if job.trainer not in _EXTENDED:
        return job
    nobodys = (Fate.UNKNOWN, Fate.ANOTHERS)
    return replace(job, given=[replace(key, fate=Fate.KNOWN) if key.fate in nobodys else key for key in job.given])
