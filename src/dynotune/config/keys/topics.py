"""The topics of a configuration in order, for help, documentation and dumps."""

import functools
import inspect
import sys
from dataclasses import dataclass

from pydantic import BaseModel

from dynotune.config.keys.topic import Topic
from dynotune.config.method import Method

_TITLES = {"SFTObjectiveConfig": "Objective"}


@dataclass(frozen=True)
class TopicInfo:
    """One group of keys."""

    title: str
    about: str
    fields: tuple[str, ...]


@functools.cache
def topics(model: type[BaseModel]) -> tuple[TopicInfo, ...]:
    """The topics that a configuration inherits, in the order in which it names them, without keys that it does not have."""
    method: Method | None = getattr(model, "method", None)
    absent = method.without if method is not None else frozenset()
    found = []
    for base in model.__mro__[1:]:
        if not (issubclass(base, Topic) and base.__module__ != Topic.__module__):
            continue
        own = tuple(name for name in inspect.get_annotations(base) if name in model.model_fields and name not in absent)
        if own:
            about = (sys.modules[base.__module__].__doc__ or "").strip().splitlines()[0]
            found.append(TopicInfo(_TITLES.get(base.__name__, base.__name__.removesuffix("Config")), about, own))
    return tuple(found)
