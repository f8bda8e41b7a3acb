"""Writes the reference pages that follow from the code: `python -m dynotune.handbook.docs docs`."""

import inspect
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from dynotune.config.checking.problems import expected
from dynotune.config.dpo import DPOConfig
from dynotune.config.fates.aliases import AXOLOTL_NAMES, DATASET_ALIASES, LLAMA_FACTORY_NAMES
from dynotune.config.fates.dpo import OLDER_DPO, REFUSED_IN_DPO
from dynotune.config.fates.fate import Fate, Kind
from dynotune.config.fates.launcher import LAUNCHER, PREFIXES
from dynotune.config.fates.legacy import LEGACY, RENAMED
from dynotune.config.fates.table import FATES, OTHER_DEFAULTS
from dynotune.config.keys.data import DatasetEntry
from dynotune.config.keys.topics import topics
from dynotune.config.sft import SFTConfig
from dynotune.handbook.speedups import speedup_page
from dynotune.speedups.registry import speedups

WRITTEN = "<!-- Written by `python -m dynotune.handbook.docs docs`. A test fails when it is out of date. -->\n"


def pages() -> Mapping[str, str]:
    """Path below the documentation's folder to content."""
    return {
        "reference/configuration.md": configuration(),
        "reference/dpo-configuration.md": dpo_configuration(),
        "reference/trl-fields.md": trl_fields(),
        "reference/axolotl-llamafactory-names.md": other_names(),
        "reference/speedups.md": speedup_page(speedups(), WRITTEN),
    }


def configuration() -> str:
    """Every key: type, default, meaning; grouped by topic."""
    lines = [
        "# Configuration keys",
        "",
        WRITTEN,
        "The keys of `dynotune sft --config FILE` (YAML or JSON), of the command line (`--learning_rate 1e-5`, also",
        "`--learning-rate`) and of `SFTConfig` in Python. Names are TRL's and transformers' where they have one;",
        "flags win over the file. What becomes of every other TRL field: [TRL's fields](trl-fields.md).",
    ]
    for topic in topics(SFTConfig):
        lines += ["", f"## {topic.title}", "", topic.about, ""]
        for key in topic.fields:
            lines += _entry(key, SFTConfig.model_fields[key])
    lines += ["", "## An entry of `datasets`", ""]
    for key, field in DatasetEntry.model_fields.items():
        lines += _entry(key, field)
    return "\n".join(lines).rstrip() + "\n"


def dpo_configuration() -> str:
    """The keys of a DPO run, where they are not SFT's."""
    lines = [
        "# Configuration keys of DPO",
        "",
        WRITTEN,
        "The keys of `DPOConfig`, where they are not those of `SFTConfig`. All others are [the same](configuration.md),",
        "with TRL's meaning: an example is a pair, so `per_device_train_batch_size` counts pairs. What each loss is:",
        "[Preference losses](../losses.md).",
    ]
    for topic in topics(DPOConfig):
        other = [key for key in topic.fields if _differs(key)]
        if other:
            lines += ["", f"## {topic.title}", "", topic.about, ""]
        for key in other:
            lines += _entry(key, DPOConfig.model_fields[key])
    lines += ["", "## Keys of SFT that DPO lacks", "", *_table(REFUSED_IN_DPO)]
    lines += ["", "## Names of older versions of TRL's DPOConfig", "", *_table(OLDER_DPO)]
    return "\n".join(lines).rstrip() + "\n"


def _differs(key: str) -> bool:
    sft, dpo = SFTConfig.model_fields.get(key), DPOConfig.model_fields[key]
    return sft is None or (sft.annotation, sft.default) != (dpo.annotation, dpo.default)


def _entry(key: str, field: FieldInfo) -> Iterator[str]:
    default = f"default `{_yaml(field.get_default(call_default_factory=True))}`"
    if field.is_required():
        default = "required"
    limits = "".join(f", {text}" for text in _limits(field))
    about = " ".join(inspect.cleandoc(field.description or "").split())
    yield from (f"### `{key}`", "", f"*{expected(field.annotation)}{limits}; {default}*", "", about, "")
    if key == "speedups":
        yield "Which there are: [Speed-ups one by one](speedups.md). On a command line each has a flag of its own, which"
        yield from ("leaves the others as the file has them: `--speedups.packed_execution on`.", "")


def _limits(field: FieldInfo) -> Iterator[str]:
    words = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
    for limit in field.metadata:
        for name, word in words.items():
            value = getattr(limit, name, None)
            if value is not None:
                yield f"{word} {value:g}" if value < 1e6 else f"{word} {value}"


def _yaml(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def trl_fields() -> str:
    """The table of fates."""
    lines = [
        "# What becomes of every TRL field",
        "",
        WRITTEN,
        "Each field of TRL's `SFTConfig`, `DPOConfig`, `ModelConfig`, `ScriptArguments` and data set classes has one",
        "fate:",
        "",
        f"- **{Kind.HONOURED}**: does what it does in TRL.",
        f"- **{Kind.MAPPED}**: asks for [speed-ups](speedups.md) by another name: each is seen to run, or the run stops.",
        "  An honoured field may ask for some as well; both name them.",
        f"- **{Kind.SUPERSEDED}**: accepted and not needed; said once at the start of a run.",
        f"- **{Kind.REFUSED}**: an error that says why and what to do instead.",
        "",
        "A value that changes nothing (TRL's default, `null`, `false`) is accepted without a word.",
        "",
        "## Defaults that are not TRL's",
        "",
        *(f"- `{key}`: {reason}." for key, reason in OTHER_DEFAULTS.items()),
    ]
    for name, table in FATES.items():
        lines += ["", f"## {name}", ""]
        shown = table
        if name == "DPOConfig":
            shown = {field: fate for field, fate in table.items() if FATES["SFTConfig"].get(field) != fate}
            lines += ["Fields that it shares with `SFTConfig` have the same fate and are not repeated.", ""]
        lines += _table(shown)
    lines += ["", "## Names of older versions", "", "| name | now |", "| --- | --- |"]
    lines += [f"| `{old}` | `{new}`; taken as such, and said |" for old, new in sorted(RENAMED.items())]
    lines += ["", *_table(LEGACY)]
    lines += ["", "## Launcher keys (`accelerate launch`, torchrun)", "", *_table(LAUNCHER)]
    lines += _table({f"{prefix}*": fate for prefix, fate in PREFIXES.items()}, head=False)
    return "\n".join(lines).rstrip() + "\n"


def _table(table: Mapping[str, Fate], *, head: bool = True) -> Iterator[str]:
    if head:
        yield from ("| field | fate | why, and what instead |", "| --- | --- | --- |")
    for field, fate in sorted(table.items()):
        said = [
            fate.reason,
            fate.instead,
            "asks for " + ", ".join(f"`{name}`" for name in fate.speedups) if fate.speedups else "",
            *(f"`{_yaml(value)}` is refused: {why}" for value, why in fate.refuses.items()),
        ]
        yield f"| `{field}` | {fate.kind} | {'; '.join(text for text in said if text).replace('|', chr(92) + '|')} |"


def other_names() -> str:
    """What Axolotl and LLaMA-Factory call our keys."""
    lines = [
        "# Names of Axolotl and LLaMA-Factory",
        "",
        WRITTEN,
        "These keys are not taken: an error suggests ours, since some differ in meaning.",
    ]
    named = {"Axolotl": AXOLOTL_NAMES, "LLaMA-Factory": LLAMA_FACTORY_NAMES, "Inside `datasets:`": DATASET_ALIASES}
    for title, table in named.items():
        lines += ["", f"## {title}", "", "| name | here |", "| --- | --- |"]
        lines += [f"| `{name}` | {ours} |" for name, ours in sorted(table.items())]
    return "\n".join(lines) + "\n"


def main(folder: Path) -> None:
    """Write every page below `folder`."""
    for name, content in pages().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
