"""CFG014: a data set that is not defined, not as the stage needs it, or by columns that its rows do not have."""

import difflib
import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.asked import given
from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.job import GivenKey, Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.columns_that_data_lacks import columns_that_data_lacks

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\nfinetuning_type: lora\ntemplate: qwen\noutput_dir: out\n"
_INFO = '{"tickets_2024": {"file_name": "tickets.json"}}\n'


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.trainer is Trainer.LLAMA_FACTORY:
        yield from _undefined(job, project)
        yield from _not_pairs(job, project)
    yield from columns_that_data_lacks(job, project)


def _undefined(job: Job, project: Project) -> Iterator[Said]:
    for key in (given(job, "dataset"), given(job, "eval_dataset")):
        names = _names(key.value) if key is not None else []
        defining = _defining(job, project)
        missing = [name for name in names if defining and not any(name in one.values for one in defining)]
        if key is not None and missing:
            yield _finding(key, missing, defining)


def _names(value: Any) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    return [part.strip() for part in parts if isinstance(part, str) and part.strip()]


def _defining(job: Job, project: Project) -> list[ConfigFile]:
    """The files that may be the one that the trainer reads: below `dataset_dir`, which is relative to where it starts."""
    folder = job.get("dataset_dir", "data")
    if not isinstance(folder, str) or folder == "ONLINE" or folder.startswith(("REMOTE:", "/", "~", "..")):
        return []
    ending = posixpath.normpath(posixpath.join(folder, "dataset_info.json"))
    held = [one for one in project.configs if posixpath.basename(one.file) == "dataset_info.json"]
    return [one for one in held if one.file == ending or one.file.endswith(f"/{ending}")]


def _finding(key: GivenKey, missing: list[str], defining: list[ConfigFile]) -> Finding:
    there = sorted({str(name) for one in defining for name in one.values})
    name = missing[0]
    close = next(iter(difflib.get_close_matches(name, there, 1, 0.8)), "")
    shown = ", ".join(f"`{one}`" for one in missing)
    meant = f" Did you mean `{close}`?" if close else ""
    value = key.value
    if isinstance(value, str):
        mended: Any = ",".join(close if part == name else part for part in _names(value))
    else:
        mended = [close if part == name else part for part in value]
    change = (Change(Edit.SET, key.place, key.name, mended),) if close and len(missing) == 1 else ()
    return Finding(
        f"`{defining[0].file}` has no data set {shown}: LLaMA-Factory stops at a name that is not defined there.{meant}",
        place=key.place,
        also=tuple(one.places[""] for one in defining if "" in one.places),
        evidence=Evidence(Level.TEXT, {"missing": missing, "defined": there[:20]}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Write `{close}`." if close else f"Define it in `{defining[0].file}`, or name one of its data sets.",
            change,
        ),
    )


def _not_pairs(job: Job, project: Project) -> Iterator[Said]:
    """Trained on by DPO, and not marked as pairs."""
    asked = given(job, "dataset")
    if job.method is not Method.DPO or asked is None:
        return
    for config in (one for one in project.configs if one.kind == "llama-factory data"):
        for name in _names(asked.value):
            held = config.values.get(name)
            if not isinstance(held, Mapping) or held.get("ranking") is True or "hf_hub_url" in held:
                continue
            yield Finding(
                f"`{name}` is trained on by DPO, and `{config.file}` does not mark it as pairs (`ranking:"
                f" true`): LLaMA-Factory"
                " stops, or reads it as plain rows.",
                place=config.places.get(name, Place(config.file, key=name)),
                evidence=Evidence(Level.RESOLVED, {"data set": name, "ranking": held.get("ranking")}),
                stake=Stake(AtStake.STOPS),
                remedy=Remedy(Risk.OPERATIONAL, f'Add `"ranking": true` to `{name}` in `{config.file}`.'),
                also=(asked.place,),
            )


_LF = (
    "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: dpo\ndo_train: true\nfinetuning_type: lora\ndataset: pairs\n"
    "dataset_dir: .\ntemplate: qwen\noutput_dir: out\n"
)
_PAIRS = '{{"pairs": {{"file_name": "pairs.json"{}, "columns": {{"chosen": "chosen", "rejected": "rejected"}}}}}}\n'


RULE = Rule(
    code="CFG014",
    name="undefined-data-set",
    summary="A configuration names a data set that is not defined, not as pairs, or by columns that it lacks.",
    group=Group.CONFIGURATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="LLaMA-Factory looks each name of `dataset` and `eval_dataset` up in `dataset_info.json` of `dataset_dir`,"
        " which also says of a data set whether its rows are pairs (`ranking: true`) and what their columns are called."
        " Axolotl's `type` and `field_messages` say the same of its data sets.",
        why="A name that is not there, or for a preference stage not marked so, ends the run while data is loaded, which may"
        " be after waiting for machines.",
        detected="E0: the names, and the keys of the project's own `dataset_info.json`. Nothing is said where that file is"
        " not in the project, or `dataset_dir` is not known. E1: the data sets of a job with `stage: dpo`, as the file"
        " defines them; columns that a configuration names, or that its format takes by their usual names, against those of"
        " the data file's first rows, where it is in the project.",
        proven='The run ends with "Undefined dataset ... in dataset_info.json".',
        deliberate=("The file is completed before the run starts.", "A data set of the hub whose loader marks it."),
        sources=(
            "LLaMA-Factory 0.9.5, `data/parser.py` `get_dataset_list`",
            "LLaMA-Factory's `data/README.md`: preference data sets",
        ),
    ),
    bad=Example(
        {"sft.yaml": f"{_SFT}dataset: tickets_2042\n", "data/dataset_info.json": _INFO},
        says="Did you mean `tickets_2024`?",
    ),
    good=Example({"sft.yaml": f"{_SFT}dataset: tickets_2024\n", "data/dataset_info.json": _INFO}),
    also_bad=(Example({"run.yaml": _LF, "dataset_info.json": _PAIRS.format("")}, says="does not mark"),),
    formerly=("DPO005",),
    former_names=("pairs-not-marked",),
)
