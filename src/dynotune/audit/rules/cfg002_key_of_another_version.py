"""CFG002: a key that the trainer's version calls otherwise, or no longer has."""

import re
from collections.abc import Iterator, Mapping

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.job import Fate, GivenKey, Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.rules.cfg001_unknown_key import left_out
from dynotune.audit.schema.keys import earlier
from dynotune.audit.schema.moved import AXOLOTL_TYPES

_FILTERS = (
    "import dataclasses\n\nimport yaml\nfrom trl import SFTConfig, SFTTrainer\n\nraw = yaml.safe_load(open('sft.yaml'))\n"
    "names = {field.name for field in dataclasses.fields(SFTConfig)}\n"
    "args = SFTConfig(**{key: value for key, value in raw.items() if key in names})\n"
    "SFTTrainer(raw['model'], args=args, train_dataset=rows).train()\n"
)
_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    carried = job.trainer is Trainer.UNSLOTH and not job.pinned
    for key in job.given:
        if carried and key.fate in (Fate.RENAMED, Fate.REMOVED):
            continue  # Unsloth's newest takes older names over, or leaves them out with a warning
        if key.fate is Fate.RENAMED:
            yield _renamed(job, key)
        elif key.fate is Fate.REMOVED:
            yield _removed(job, key)
        elif job.trainer is Trainer.AXOLOTL and key.name in ("datasets", "test_datasets"):
            yield from _of_types(job, key, project)


def _of_types(job: Job, key: GivenKey, project: Project) -> Iterator[Said]:
    """Formats of data sets that Axolotl's version refuses."""
    places = next((one.places for one in project.configs if one.file == key.place.file), {})
    version = job.pinned.get("axolotl") or job.versions.get("axolotl", "")
    for number, rows in enumerate(key.value if isinstance(key.value, list) else ()):
        kind = rows.get("type") if isinstance(rows, Mapping) else None
        for name, moved in AXOLOTL_TYPES.items() if isinstance(kind, str) else ():
            assert isinstance(kind, str)
            if re.fullmatch(rf"{name}(?:[.:].*)?", kind) and not (version and earlier(version, moved.since)):
                yield Finding(
                    f"`type: {kind}` is refused: it is gone since {moved.package} {moved.since}.",
                    place=places.get(f"{key.name}.{number}.type", key.place),
                    evidence=Evidence(Level.TEXT, {"type": kind, "versions": {**job.versions, **job.pinned}}),
                    stake=Stake(AtStake.STOPS),
                    remedy=Remedy(Risk.BEHAVIOURAL, f"{moved.text}."),
                )


def _renamed(job: Job, key: GivenKey) -> Finding:
    if key.left_out is not None:
        return left_out(job, key, key.why, f"Call it `{key.instead}`.")
    twice = any(one.name == key.instead for one in job.given)
    return Finding(
        f"`{key.name}` is refused: {key.why}.",
        place=key.place,
        evidence=Evidence(Level.TEXT, {"key": key.name, "versions": {**job.versions, **job.pinned}}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL if twice else Risk.SAFE,
            f"Remove it: `{key.instead}` is given too." if twice else f"Call it `{key.instead}`.",
            () if twice else (Change(Edit.RENAME, key.place, key.name, to=key.instead),),
            breaks="" if twice else "releases before the change, which know the old name alone",
        ),
    )


_NEEDS_NOTHING = ("emove it", "always saved")
"""What an advice says where the key can go without anything in its place."""


def _removed(job: Job, key: GivenKey) -> Finding:
    plain = any(words in key.why for words in _NEEDS_NOTHING)
    advice = key.why.partition(". ")[2]
    if key.left_out is not None:
        return left_out(job, key, key.why.partition(". ")[0], "Remove it." if plain or not advice else f"{advice}.")
    return Finding(
        f"`{key.name}` is refused: {key.why.partition('. ')[0]}.",
        place=key.place,
        evidence=Evidence(Level.TEXT, {"key": key.name, "versions": {**job.versions, **job.pinned}}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.SAFE if plain else Risk.BEHAVIOURAL,
            "Remove it." if plain or not advice else f"{advice}.",
            (Change(Edit.REMOVE, key.place, key.name),) if plain else (),
        ),
    )


RULE = Rule(
    code="CFG002",
    name="key-of-another-version",
    summary="A key has another name in the trainer's version, or is gone from it.",
    group=Group.CONFIGURATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="transformers and TRL rename keys; for some releases both names work, then the old one is refused. Others go:"
        " what they asked for is always so now, or another key says it.",
        why="The run stops where its arguments are made, or, in a script that filters its arguments, the value is lost.",
        detected="E0: a table of renames and removals (and of formats of data sets that Axolotl took once), each checked"
        " against the releases before and after, and the fields of the version that is installed or given. A project that"
        " asks for an older version (`trl==0.11` in its requirements) is believed; one of Unsloth that asks for none is left"
        " alone.",
        proven="`trl.SFTConfig(max_seq_length=1)` raises an error: the class has no field of the old name.",
        deliberate=("The run uses an older release than the one that was looked at.",),
        sources=(
            "the sources of transformers 4.40 to 5.23, TRL 0.9 to 1.16, and Axolotl 0.9.2 and 0.12.2",
            "Unsloth 2026.10.9, `models/rl_config_compat.py`: renamed keys are taken over, removed ones left out",
        ),
    ),
    bad=Example({"sft.yaml": f"{_SFT}max_seq_length: 2048\n"}, says="calls it `max_length`"),
    good=Example({"sft.yaml": f"{_SFT}max_length: 2048\n"}),
    also_bad=(
        Example(
            {"a.yml": "base_model: a/b\ndatasets:\n  - path: d.jsonl\n    type: sharegpt\nsequence_len: 2048\n"},
            says="gone since axolotl",
        ),
        Example({"sft.yaml": f"{_SFT}overwrite_output_dir: true\n"}, says="gone since transformers 5.0"),
        Example(
            {"train.py": _FILTERS, "sft.yaml": "model: Qwen/Qwen2.5-0.5B\nmax_seq_length: 2048\noutput_dir: runs/a\n"},
            says="dropped without a word",
        ),
    ),
    formerly=("CFG003",),
    former_names=(
        "removed-key",
        "renamed-key",
    ),
)
