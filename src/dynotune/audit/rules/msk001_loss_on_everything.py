"""MSK001: loss on answers only is asked for, and this data gives loss on everything."""

import re
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.asked import given
from dynotune.audit.facts.data import DataFacts
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, NotChecked, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import NONE_OF, Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.all_tokens_under_a_claim import all_tokens_under_a_claim
from dynotune.audit.shapes.claims_of_comments import ANSWERS, NOT_SO
from dynotune.audit.shapes.keys_under_a_claim import keys_under_a_claim
from dynotune.audit.shapes.labels_the_wrong_way import labels_the_wrong_way
from dynotune.audit.shapes.rows_under_a_claim import rows_under_a_claim
from dynotune.audit.shapes.whole_labels_under_a_claim import claim_of_answers, whole_labels_under_a_claim
from dynotune.audit.shapes.whole_texts_under_a_claim import whole_texts_under_a_claim

CONVERSATIONS = ("messages", "ShareGPT", "sharegpt")
_AXOLOTL = (
    "base_model: Qwen/Qwen2.5-0.5B\ndatasets:\n  - path: data.jsonl\n    type: {}\nsequence_len: 2048\n"
    "micro_batch_size: 4\n"
)
PLAIN = ("text in the column",)


def check(project: Project, _: Project) -> Iterator[Said]:
    for job in project.jobs:
        yield from _of_whole_texts(job, project)
    yield from _of_trl(project)
    yield from rows_under_a_claim(project)
    yield from whole_labels_under_a_claim(project)
    yield from labels_the_wrong_way(project)
    yield from keys_under_a_claim(project)
    yield from all_tokens_under_a_claim(project)
    for data in project.data:
        if data.per_example == 1:
            yield from _of_rows(data, project)
    if not project.data:
        yield NotChecked(NONE_OF[Subject.DATA])


_SHORT = re.compile(
    r"\b(?:answers?|responses?|completions?|replies|assistant)\b[\w ]{0,20}\bonly\b|\bonly\b[\w ]{0,20}\b(?:answers?"
    r"|responses?|completions?|replies|assistant)\b",
    re.IGNORECASE,
)
"""Beside the key itself, which is of the loss."""


def _of_whole_texts(job: Job, project: Project) -> Iterator[Said]:
    """Axolotl masks no prompt in rows of `type: completion`, which are one text, and a comment or a document wants it."""
    key, rows = given(job, "train_on_inputs"), given(job, "datasets")
    if job.trainer is not Trainer.AXOLOTL or key is None or key.value is not False or rows is None:
        return
    kinds = [one.get("type") for one in rows.value or () if isinstance(one, Mapping)]
    if not kinds or any(kind != "completion" for kind in kinds):
        return
    wanted = _wanted(key.place, job, project)
    if wanted is None:
        return
    yield Finding(
        f"`{wanted.file}` wants the loss on answers alone, and rows of `type: completion` carry loss on every token:"
        " `train_on_inputs: false` does nothing for them.",
        place=key.place,
        evidence=Evidence(Level.RESOLVED, {"type": "completion", "train_on_inputs": False}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Give rows with prompt and answer apart (`type: alpaca`, `input_output`, `chat_template`), or mend the text.",
            effort=Effort.MINUTES,
            accuracy="Loss on answers alone.",
        ),
        also=(wanted, rows.place),
    )


def _of_trl(project: Project) -> Iterator[Said]:
    """Once for a script, however many jobs start it."""
    seen: set[str] = set()
    for job in project.jobs:
        start = next((one for one in project.scripts if one.file in job.files and one.calls_of("SFTTrainer")), None)
        if start is not None and start.file not in seen:
            found = [*whole_texts_under_a_claim(job, project, start, claim_of_answers(start.file, project))]
            seen |= {start.file} if found else set()
            yield from found


def _wanted(key: Place, job: Job, project: Project) -> Place | None:
    """Where the loss is said to be on answers alone: beside the key or above it, or in a document of the project."""
    comments = next((one.comments for one in project.configs if one.file == key.file), {})
    for line in (key.line, key.line - 1):
        text = comments.get(line, "")[:300]
        if (_SHORT.search(text) or ANSWERS.search(text)) and not NOT_SO.search(text):
            return Place(key.file, line)
    for file, document in project.documents.items():
        for number, text in enumerate(document.split("\n"), 1):
            if ANSWERS.search(text) and not NOT_SO.search(text.partition(" - ")[0]):
                return Place(file, number)
    return None


def _of_rows(data: DataFacts, project: Project) -> Iterator[Said]:
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
            measure="Print the labels of one row that are not -100.",
        ),
        also=(data.place,),
    )


RULE = Rule(
    code="MSK001",
    name="loss-on-everything",
    summary="Loss on answers is asked for, and the data's format gives loss on everything.",
    group=Group.CORRECTNESS,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="TRL masks prompts in two ways: `completion_only_loss` for rows with `prompt` and `completion`, and"
        " `assistant_only_loss` for conversations. On data of the other kind the first does nothing.",
        why="Questions are learned like answers, and nothing is printed.",
        detected="E1: the format that the rows have, against the key that is set; in Axolotl `train_on_inputs: false`, with"
        " a comment beside it or a document that wants the loss on answers alone, over data that is all `type: completion`."
        " TRL's command line without `assistant_only_loss` over conversations, or over whole texts, where a document or a"
        " comment of the configuration says so."
        " A document that says that the loss is on answers alone, over `train_on_inputs: true`,"
        " `completion_only_loss: false` or `roles_to_train` with `user` in it.",
        proven="`dynotune prepare --config sft.yaml --show 3` prints rows with the trained tokens marked.",
        deliberate=("Another data set, that the audit did not see, has the other format.",),
        sources=("TRL 1.16's collator: a mask is applied where `completion_mask` exists",),
    ),
    bad=Example(
        {"a.yml": f"{_AXOLOTL.format('completion')}train_on_inputs: false  # answers only\n"},
        says="`type: completion` carry",
    ),
    good=Example({"a.yml": f"{_AXOLOTL.format('alpaca')}train_on_inputs: false  # answers only\n"}),
)
