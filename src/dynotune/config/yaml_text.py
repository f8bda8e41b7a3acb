"""A configuration as YAML: every key, grouped by topic, those that differ from the default marked."""

import sys
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from dynotune.config.keys.topics import topics
from dynotune.config.reading.files import Loader
from dynotune.config.secrets import is_secret, masked, public, secret_names
from dynotune.printable import printable


class _Dumper(yaml.SafeDumper):
    """Quotes the text that our reader would take for a number (`1e-5`)."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_FACTORS = frozenset({"per_device_train_batch_size", "gradient_accumulation_steps"})

_Dumper.yaml_implicit_resolvers = Loader.yaml_implicit_resolvers


def to_yaml(config: BaseModel, *, nested_secrets: bool = False) -> str:
    """Every key of every topic. Secrets are left out, and a comment says so. nested_secrets: as in `Checked.to_yaml`."""
    lines: list[str] = []
    for topic in topics(type(config)):
        lines += ["", f"# {topic.title}: {topic.about}"]
        for key in topic.fields:
            lines.append(_line(config, key, nested_secrets))
    return "\n".join(lines).lstrip() + "\n"


def _line(config: BaseModel, key: str, nested_secrets: bool) -> str:
    field = type(config).model_fields[key]
    value = getattr(config, key)
    default = field.get_default(call_default_factory=True)
    if is_secret(key) and isinstance(value, str):
        return f"# {key}: (given; secrets are not written)"
    if (
        key in _FACTORS
        and getattr(config, "global_batch_size", None) is not None
        and key not in config.model_fields_set
    ):
        return f"# {key}: (`global_batch_size` decides)"
    note = ""
    plain = _plain(value)
    if nested_secrets and key != "env":
        return flow({key: plain})[1:-1]
    names, shown = secret_names(key, plain), public(key, plain)
    if default not in (value, shown, PydanticUndefined):
        note = f"  # default: {flow(_plain(default))}"
    if names:
        # Names may hold anything, and a line break would end the comment.
        note += f"{';' if note else '  #'} {printable(masked(', '.join(names)))}: (given; secrets are not written)"
    elif shown != plain:
        note += f"{';' if note else '  #'} a password or token in it is not written"
    return f"{flow({key: shown})[1:-1]}{note}"


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)  # `save_steps: 500`, as people write it
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_defaults=True)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def flow(value: Any) -> str:
    """A value on one line. YAML's flow style between braces, so that the text also holds outside of them."""
    text: str = yaml.dump(
        {"_": value} if not isinstance(value, dict) else value,
        Dumper=_Dumper,
        default_flow_style=True,
        width=sys.maxsize,
        sort_keys=False,
        allow_unicode=False,
    ).rstrip("\n")
    return text if isinstance(value, dict) else text.removeprefix("{_: ").removesuffix("}")
