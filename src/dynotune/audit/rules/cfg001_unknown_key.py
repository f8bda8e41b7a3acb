"""CFG001: a key that the trainer does not know, or that only another trainer does."""

import difflib
from collections.abc import Iterator

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.job import Fate, GivenKey, Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.keys_of_calls import keys_of_calls

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\n"
DROPS = frozenset({Trainer.AXOLOTL})
"""Trainers that take a key they do not know and go on without a word; the others stop."""

_OF_PARSERS = frozenset({"fail_with_unknown_args", "return_remaining_strings", "separate_remaining_strings"})
"""Arguments of a parser's own call in a script, which are no keys."""


def check(job: Job, project: Project) -> Iterator[Said]:
    if project.jobs and project.jobs[0] is job:
        yield from keys_of_calls(project)
    for key in job.given:
        asks = key.value not in (None, False, "", [], {}) or job.trainer not in DROPS
        if key.fate is Fate.UNKNOWN and asks and not key.name.startswith("_") and key.name not in _OF_PARSERS:
            yield _nobodys(job, key)
        elif key.fate is Fate.ANOTHERS:
            yield _anothers(job, key)


def left_out(job: Job, key: GivenKey, why: str, remedy: str) -> Finding:
    """Of a key that a script keeps from the class which does not take it."""
    assert key.left_out is not None
    facts = {"key": key.name, "left out at": str(key.left_out), "versions": {**job.versions, **job.pinned}}
    return Finding(
        f"`{key.name}` is dropped without a word: {why}, and {key.left_out} hands on only what the class takes. What it asks"
        " for does not happen.",
        place=key.place,
        also=(key.left_out,),
        evidence=Evidence(Level.RESOLVED, facts),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"{remedy} And let the script stop at keys that nothing takes.",
            accuracy="what the key asks for starts to happen",
        ),
    )


def _nobodys(job: Job, key: GivenKey) -> Finding:
    if key.left_out is not None:
        return left_out(job, key, f"{job.trainer.value} has no such key", "Give it its right name, or remove it.")
    unknown = {one.name for one in job.given if one.fate is Fate.UNKNOWN}
    known = {*job.settings, *job.native.values()} - unknown
    close = key.instead or next(iter(difflib.get_close_matches(key.name, sorted(known), 1, 0.8)), "")
    said_by = " and ".join(f"{name} {version}" for name, version in job.versions.items()) or job.trainer.value
    drops = job.trainer in DROPS
    happens = "drops it without a word" if drops else "stops at it"
    meant = f" Did you mean `{close}`?" if close else ""
    given = any(one.name == close for one in job.given)
    change = (Change(Edit.RENAME, key.place, key.name, to=close),) if close and not given else ()
    return Finding(
        f"`{key.name}` is no key of {job.trainer.value} ({said_by}), which {happens}.{meant}",
        place=key.place,
        evidence=Evidence(Level.TEXT, {"key": key.name, "checked against": said_by}),
        cause=f"keys that are none of {job.trainer.value}",
        stake=Stake(AtStake.RESULT if drops else AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Rename it to `{close}`, or remove it." if close else "Remove it, or give it its right name.",
            change,
            accuracy="what the key asks for starts to happen" if close else "",
        ),
    )


def _anothers(job: Job, key: GivenKey) -> Finding:
    if key.left_out is not None:
        return left_out(job, key, f"{key.why}, and here it is `{key.instead}`", f"Call it `{key.instead}`.")
    drops = job.trainer in DROPS
    happens = "drops it without a word" if drops else "stops at it"
    called = f"; here it is `{key.instead}`" if key.instead else ""
    return Finding(
        f"`{key.name}` is not {job.trainer.value}'s, which {happens}: {key.why}{called}.",
        place=key.place,
        evidence=Evidence(Level.TEXT, {"key": key.name, "trainer": job.trainer.value}),
        stake=Stake(AtStake.RESULT if drops else AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Say it as `{key.instead}`, whose values may differ, or remove it." if key.instead else "Remove it.",
            accuracy="what the key asks for starts to happen" if key.instead else "",
        ),
    )


RULE = Rule(
    code="CFG001",
    name="unknown-key",
    summary="A key is none of the trainer's, or another trainer's.",
    group=Group.CONFIGURATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="Every key is looked up among the fields of the trainer's own classes: of the version that is installed, of"
        " sources that are given or lie in the project, else of the released version that the finding names. Axolotl,"
        " LLaMA-Factory and TRL have names of their own for the same things (`sequence_len`, `cutoff_len`, `max_length`):"
        " of a key that another trainer has, it is said whose it is.",
        why="Axolotl drops a key that it does not know: what it asks for never happens, and nothing says so."
        " TRL and LLaMA-Factory stop, often only after a job has waited for its machines.",
        detected="E0: the key stands in a file, a call or a command; the classes are read as text, nothing is imported.",
        proven="The trainer's `--help`, or its configuration as it was resolved, does not have the key.",
        deliberate=(
            "A trainer that was extended: give its sources (`--sources`), and its own fields are known.",
            "A note to oneself; a comment says it better.",
            "One file that two trainers read, where each drops the other's keys.",
        ),
        sources=(
            "Axolotl 0.19: pydantic's default for extra keys; its example falcon-h1-1b-qlora-cp.yaml ships"
            " `context_parapllel_size`",
            "the sources of TRL 1.16, Axolotl 0.19 and LLaMA-Factory 0.9.5",
        ),
    ),
    bad=Example({"sft.yaml": f"{_SFT}lerning_rate: 1.0e-5\n"}, says="Did you mean `learning_rate`?"),
    good=Example({"sft.yaml": f"{_SFT}learning_rate: 1.0e-5\npacking: true\n"}),
    also_bad=(Example({"sft.yaml": f"{_SFT}sample_packing: true\n"}, says="Axolotl's name"),),
    formerly=("CFG004",),
    former_names=("anothers-key",),
)
