"""CKP053: code that comes with a checkpoint is run, whatever it is on that day."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_COMMIT = re.compile(r"[0-9a-f]{40}")


def check(job: Job, project: Project) -> Iterator[Said]:
    asked = job.setting("trust_remote_code")
    if asked is None or asked.value is not True or not job.is_given("trust_remote_code"):
        return
    revision = job.get("model_revision")
    if isinstance(revision, str) and _COMMIT.fullmatch(revision):
        return
    name = job.get("model_name_or_path")
    if not isinstance(name, str) or name.startswith((".", "/", "~")) or name.count("/") > 1:
        return  # a folder of one's own, or not known
    taken = "" if job.trainer is Trainer.DYNOTUNE else ", on every rank, with the rights of who trains"
    yield Finding(
        f"`{job.called('trust_remote_code')}: true` runs the code that lies beside the weights of `{name}` on the"
        f" hub at that"
        f" moment{taken}.",
        place=job.place("trust_remote_code"),
        evidence=Evidence(Level.RESOLVED, {"model": name, "revision": revision}),
        stake=Stake(AtStake.LOST, source="whoever can push there has the rights of who trains"),
        remedy=Remedy(
            Risk.OPERATIONAL,
            "Take it out: transformers has the common architectures itself. Where it is needed, read the code and"
            " name the"
            " commit (`model_revision`).",
            breaks="Architectures that only the checkpoint's code knows do not load without it.",
        ),
    )


_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\noutput_dir: out\n"
RULE = Rule(
    code="CKP053",
    name="foreign-code",
    summary="Code from the hub is run, and not a commit of it that somebody has read.",
    group=Group.OPERATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="With `trust_remote_code`, transformers imports the Python files of a checkpoint's repository.",
        why="It is downloaded and run at every new revision. Most configurations carry the key since an example"
        " did, for models"
        " that transformers has long had itself; the model's own code then replaces the maintained one, often"
        " without its"
        " attention backends.",
        detected="E1: the key is given and true, the model is named on the hub, and its revision is no commit.",
        proven="Take it out: the model loads, or the message names what is missing.",
        deliberate=("The architecture is not in transformers yet.", "The hub's repository is your own."),
        sources=("transformers' documentation on custom models",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}trust_remote_code: true\n"}, says="runs the code"),
    good=Example({"sft.yaml": _SFT}),
)
