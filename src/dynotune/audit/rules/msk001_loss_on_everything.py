"""MSK001: loss on answers only is asked for, and this data gives loss on everything."""

from collections.abc import Iterator

from dynotune.audit.facts.data import DataFacts
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Group, Page, Rule, Subject

CONVERSATIONS = ("messages", "ShareGPT", "sharegpt")
PLAIN = ("text in the column",)


def check(data: DataFacts, project: Project) -> Iterator[Said]:
    if data.per_example != 1:
        return
    for job in project.jobs_of(data):
        if job.trainer is not Trainer.TRL or job.method is not Method.SFT:
            continue
        if job.get("completion_only_loss") is True and data.format.startswith((*CONVERSATIONS, *PLAIN)):
            yield _finding(job, data, "completion_only_loss")
        elif job.get("assistant_only_loss") is True and data.format.startswith(PLAIN):
            yield _finding(job, data, "assistant_only_loss")


def _finding(job: Job, data: DataFacts, key: str) -> Finding:
    completion = key == "completion_only_loss"
    chats = data.format.startswith(CONVERSATIONS)
    has = "`messages`" if chats else "plain text"
    then = "the loss is on everything, prompts included" if completion else "the run stops"
    text = (
        "Set `assistant_only_loss: true`, which is for conversations"
        if chats
        else "Give rows with `prompt` and `completion`, or with `messages`"
    )
    return Finding(
        f"`{key}: true` is for {'rows with `prompt` and `completion`' if completion else 'conversations'}, and this data has"
        f" {has}: {then}.",
        place=job.place(key),
        evidence=Evidence(Level.RESOLVED, {key: True, "format": data.format}),
        stake=Stake(AtStake.RESULT if completion else AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"{text}.",
            (job.set("assistant_only_loss", True), job.remove(key))
            if completion and chats and job.is_given(key)
            else (),
            effort=Effort.LINE if chats else Effort.MINUTES,
            accuracy="Loss on answers alone.",
            measure="dynotune prepare --config sft.yaml --show 3",
        ),
        also=(data.place,),
    )


RULE = Rule(
    code="MSK001",
    name="loss-on-everything",
    summary="Loss on answers is asked for, and the data's format gives loss on everything.",
    group=Group.CORRECTNESS,
    subject=Subject.DATA,
    check=check,
    page=Page(
        what="TRL masks prompts in two ways: `completion_only_loss` for rows with `prompt` and `completion`, and"
        " `assistant_only_loss` for conversations. On data of the other kind the first does nothing.",
        why="Questions are learned like answers, and nothing is printed.",
        detected="E1: the format that the rows have, against the key that is set.",
        proven="`dynotune prepare --config sft.yaml --show 3` prints rows with the trained tokens marked.",
        deliberate=("Another data set, that the audit did not see, has the other format.",),
        sources=("TRL 1.16's collator: a mask is applied where `completion_mask` exists",),
    ),
)
