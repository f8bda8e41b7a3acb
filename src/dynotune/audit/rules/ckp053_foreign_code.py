"""CKP053: code that comes with a checkpoint is run, whatever it is on that day."""

import re
from collections.abc import Iterator
from typing import Any

from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import known
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.pickle_of_others import pickle_of_others
from dynotune.audit.shapes.pickle_of_weights import pickle_of_weights

_COMMIT = re.compile(r"[0-9a-f]{40}")


def check(project: Project, _: Project) -> Iterator[Said]:
    for script in project.scripts:
        of_others = list(pickle_of_others(script, project))
        yield from of_others or pickle_of_weights(script)
        yield from _of_rows(script)
    for job in project.jobs:
        yield from _of_the_hub(job, project)


_OF_FILES = frozenset({"json", "csv", "parquet", "arrow", "text", "imagefolder", "audiofolder", "webdataset"})
_WITHOUT_SCRIPT = re.compile(
    r"^(?:openai/gsm8k|gsm8k|(?:stanfordnlp/)?imdb|(?:Salesforce/)?wikitext|(?:nyu-mll/)?glue|(?:rajpurkar/)?squad"
    r"|tatsu-lab/alpaca|yahma/alpaca-cleaned|Open-Orca/\S+|trl-lib/\S+|trl-internal-testing/\S+|HuggingFaceH4/\S+"
    r"|HuggingFaceTB/\S+|HuggingFaceFW/\S+|teknium/\S+|mlabonne/\S+|allenai/tulu\S+|roneneldan/TinyStories"
    r"|databricks/databricks-dolly-15k|OpenAssistant/oasst\w+|argilla/\S+|Anthropic/hh-rlhf)$"
)
"""Data sets that lie on the hub as plain files."""


def _of_rows(script: Script) -> Iterator[Said]:
    """`load_dataset("openai/gsm8k", trust_remote_code=True)`: of plain files, which have no script to run."""
    for call in script.calls_of("load_dataset"):
        trusts, named = call.arguments.get("trust_remote_code"), call.arguments.get("0") or call.arguments.get("path")
        name = named.value if named is not None else None
        if trusts is None or trusts.value is not True or not isinstance(name, str):
            continue
        if name in _OF_FILES or _WITHOUT_SCRIPT.match(name):
            yield Finding(
                f"`trust_remote_code=True` lets `{name}` run code of its own one day, and needs none: it is read"
                f" from plain"
                " files.",
                place=trusts.place if trusts.place.line else call.place,
                evidence=Evidence(Level.TEXT, {"data set": name, "script": None}),
                stake=Stake(AtStake.LOST, source="whoever can push there has the rights of who trains"),
                remedy=Remedy(Risk.SAFE, "Take it out."),
                also=(call.place,),
            )
            return


def _of_the_hub(job: Job, project: Project) -> Iterator[Said]:
    place, revision = _asked(job, project)
    if place is None:
        return
    if isinstance(revision, str) and _COMMIT.fullmatch(revision):
        return
    name = job.get("model_name_or_path")
    if not isinstance(name, str) or name.startswith((".", "/", "~")) or name.count("/") > 1:
        return  # a folder of one's own, or not known
    model = known(name)
    own = model is not None and name.partition("/")[0].lower() in _OFFICIAL
    taken = "" if job.trainer is Trainer.DYNOTUNE else ", on every rank, with the rights of who trains"
    yield Finding(
        f"`{job.called('trust_remote_code')}: true` runs whatever code lies beside the weights of `{name}` on the hub"
        f" when it starts{taken}{', and this model needs none' if own else ''}.",
        place=place,
        evidence=Evidence(Level.RESOLVED, {"model": name, "revision": revision}),
        stake=Stake(AtStake.LOST, source="whoever can push there has the rights of who trains"),
        remedy=Remedy(
            Risk.OPERATIONAL,
            f"Take it out: transformers has the code of `{model.model_type}` itself."
            if own and model is not None
            else "Take it out: transformers has the common architectures itself. Where it is needed, read the code and"
            f" name the commit ({_REVISION.get(job.trainer, '`revision`')}).",
            breaks="" if own else "Architectures that only the checkpoint's code knows do not load without it.",
        ),
    )


_OFFICIAL = frozenset(
    {
        *("qwen", "meta-llama", "mistralai", "google", "microsoft", "huggingfacetb", "tinyllama", "eleutherai"),
        *("openai-community", "facebook", "allenai", "ibm-granite", "nousresearch", "unsloth"),
    }
)
"""Whose models of the known families are made for transformers' own code."""

_REVISION = {
    Trainer.AXOLOTL: "`revision_of_model`",
    Trainer.LLAMA_FACTORY: "`model_revision`",
    Trainer.TRL: "`model_revision`, or `revision=` of `from_pretrained`",
    Trainer.DYNOTUNE: "`model_revision`",
}
"""How trainers call it; a script gives it to `from_pretrained`."""


def _asked(job: Job, project: Project) -> tuple[Place | None, Any]:
    """Where the job asks for it, by a setting or for the tokenizer alone; and the revision that it names there."""
    asked = job.setting("trust_remote_code")
    if asked is not None and asked.value is True and job.is_given("trust_remote_code"):
        return job.place("trust_remote_code"), job.get("model_revision")
    for script in (one for one in project.scripts if one.file in job.files):
        for call in script.calls_of("from_pretrained"):
            trusts = call.arguments.get("trust_remote_code")
            named = call.arguments.get("0") or call.arguments.get("pretrained_model_name_or_path")
            same = named is not None and (not named.is_known or named.value == job.get("model_name_or_path"))
            if trusts is not None and trusts.value is True and same and "Tokenizer" in call.name:
                revision = call.arguments.get("revision")
                return call.place, revision.value if revision is not None else None
    return None, None


_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\noutput_dir: out\n"
RULE = Rule(
    code="CKP053",
    name="foreign-code",
    summary="Code that comes with weights is run, and it is not one that somebody has read.",
    group=Group.OPERATION,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="With `trust_remote_code`, transformers imports the Python files of a checkpoint's repository.",
        why="It is downloaded and run at every new revision. Most configurations carry the key since an example"
        " did, for models"
        " that transformers has long had itself; the model's own code then replaces the maintained one, often"
        " without its"
        " attention backends.",
        detected="E1: the key is given and true, the model is named on the hub, and its revision is no commit. E0: what"
        " `torch.load(..., weights_only=False)` reads goes whole to `load_state_dict`, from a file that the script"
        " does not"
        " write itself; or it, `numpy.load(..., allow_pickle=True)` or `pickle.load` reads a file that a call or a"
        " launcher of"
        " the project downloads, also by the default of a torch before 2.6.",
        proven="Take it out: the model loads, or the message names what is missing.",
        deliberate=("The architecture is not in transformers yet.", "The hub's repository is your own."),
        sources=("transformers' documentation on custom models",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}trust_remote_code: true\n"}, says="runs whatever code"),
    good=Example({"sft.yaml": _SFT}),
)
