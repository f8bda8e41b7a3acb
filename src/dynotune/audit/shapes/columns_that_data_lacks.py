"""A configuration reads columns that its data file does not have."""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynotune.audit.facts.asked import given
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place


@dataclass(frozen=True, slots=True)
class _Read:
    """Columns that an entry reads, by what it calls them."""

    file: str
    columns: Mapping[str, str]
    place: Place
    also: Place
    tags: Sequence[str] = ()
    """Keys of a turn, of a column `messages`."""


_ALPACA = {"prompt": "instruction", "response": "output"}
_OF_AXOLOTL = {
    "alpaca": ("instruction", "output"),
    "alpaca_chat.load_qa": ("question", "answer"),
    "sharegpt": ("conversations",),
    "input_output": ("segments",),
}
"""What a `type` of Axolotl's takes by fixed names."""


def columns_that_data_lacks(job: Job, project: Project) -> Iterator[Said]:
    reads = _of_llama_factory(job, project) if job.trainer is Trainer.LLAMA_FACTORY else _of_axolotl(job)
    for read in reads:
        held = project.columns.get(read.file)
        if held is None:
            continue
        missing = [name for name in dict.fromkeys(read.columns.values()) if name not in held]
        what, there = "rows", list(held)
        turns = held.get(read.columns.get("messages", ""))
        if turns and not missing:
            missing, what, there = [one for one in read.tags if one not in turns], "turns", list(turns)
        if not missing:
            continue
        shown = ", ".join(f"`{name}`" for name in missing)
        yield Finding(
            f"The {what} of `{read.file}` have no {shown}, which is read from them; they have"
            f" {', '.join(f'`{name}`' for name in there[:6])}: the run stops while data is prepared.",
            place=read.place,
            also=(read.also, Place(read.file, 1)),
            evidence=Evidence(Level.RESOLVED, {"read": dict(read.columns), "there": there[:20]}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(Risk.BEHAVIOURAL, "Name the columns that the rows have, or another format."),
        )


def _of_llama_factory(job: Job, project: Project) -> Iterator[_Read]:
    asked = given(job, "dataset")
    if asked is None or job.method not in (Method.SFT, Method.PRETRAINING):
        return
    names = [one.strip() for one in str(asked.value).split(",")] if isinstance(asked.value, str) else []
    for config in (one for one in project.configs if one.kind == "llama-factory data"):
        for name in names:
            entry = config.values.get(name)
            file = entry.get("file_name") if isinstance(entry, Mapping) else None
            if not isinstance(entry, Mapping) or not isinstance(file, str):
                continue
            listed = entry.get("columns")
            columns: dict[str, str] = {
                str(key): value
                for key, value in (listed if isinstance(listed, Mapping) else {}).items()
                if isinstance(value, str)
            }
            if entry.get("formatting", "alpaca") == "sharegpt":
                columns.setdefault("messages", "conversations")
            elif entry.get("formatting", "alpaca") == "alpaca" and not columns:
                columns = dict(_ALPACA) if job.method is Method.SFT else {}
            yield _Read(
                posixpath.normpath(posixpath.join(posixpath.dirname(config.file), file)),
                columns,
                config.places.get(f"{name}.columns", config.places.get(name, Place(config.file))),
                asked.place,
                _tags(entry) if entry.get("formatting") == "sharegpt" else (),
            )


def _tags(entry: Mapping[str, Any]) -> tuple[str, str]:
    """What a turn's speaker and text are called."""
    named = entry.get("tags")
    tags = named if isinstance(named, Mapping) else {}
    return str(tags.get("role_tag", "from")), str(tags.get("content_tag", "value"))


def _of_axolotl(job: Job) -> Iterator[_Read]:
    key = given(job, "datasets")
    if job.trainer is not Trainer.AXOLOTL or key is None or job.method is not Method.SFT:
        return
    for entry in key.value if isinstance(key.value, list | tuple) else ():
        if not isinstance(entry, Mapping):
            continue
        file = entry.get("path") if str(entry.get("path")).endswith((".json", ".jsonl")) else entry.get("data_files")
        if isinstance(file, str):
            yield _Read(posixpath.normpath(file), _names_of(entry), key.place, key.place)


def _names_of(entry: Mapping[str, Any]) -> dict[str, str]:
    kind = entry.get("type")
    if isinstance(kind, Mapping):
        # `input` may be missing in a row
        return {
            f"field_{part}": value
            for part in ("instruction", "output")
            if isinstance(value := kind.get(f"field_{part}", part), str) and kind.get("format")
        }
    if kind == "chat_template":
        name = entry.get("field_messages", "messages")
        return {"field_messages": name} if isinstance(name, str) else {}
    if kind == "completion":
        name = entry.get("field", "text")
        return {"field": name} if isinstance(name, str) else {}
    return {one: one for one in _OF_AXOLOTL.get(str(kind), ())}
