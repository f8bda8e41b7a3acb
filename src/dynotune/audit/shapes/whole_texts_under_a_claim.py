"""A project says that its loss is on answers alone, and TRL's trainer gets rows that it takes the loss on all of."""

import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.masking_of_trl import way_to_answers

_MASKS = re.compile(
    r"-100|IGNORE|ignore_index|[Cc]ompletion|responses_only|assistant_mask|assistant_only|return_assistant_tokens|loss_mask"
    r"|label_mask|prompt_mask\b|train_on_inputs|masked_fill|\blabels\b|(?<!training_)data_collator|AssistantOnly"
)
"""What may take the prompt out of the loss, or make rows that TRL divides itself."""

_TEXT = re.compile(r"\{[\"']text[\"']: |\[[\"']text[\"']\] *=|dataset_text_field[\"']? *[=:] *[\"']text[\"']")
_WHOLE = "rows of `messages` without a mask"
_MADE = re.compile(r"\.map\(|from_list\(|from_generator\(|from_dict\(|\.rename_columns?\(|\btokenize\w*\(")
"""What makes other rows than those of the file."""

_ROW = re.compile(r"\{\s*[\"']messages[\"']\s*:")
_DIVIDED = re.compile(r"\{\s*[\"']prompt[\"']\s*:|[\"']completion[\"']\s*:")
_MESSAGES = re.compile(r"[\"']messages[\"']")


def whole_texts_under_a_claim(job: Job, project: Project, start: Script, claim: Place | None) -> Iterator[Said]:
    """start: the job's script. claim: where the project says that its loss is on answers alone."""
    if job.trainer not in (Trainer.TRL, Trainer.UNSLOTH) or job.method is not Method.SFT or claim is None:
        return
    if job.get("assistant_only_loss") or job.get("completion_only_loss"):
        return
    if job.holes and any("only_loss" in text for text in project.texts.values()):
        return  # a configuration that was not joined with the job may set it
    program = connected(start, project)
    trainer = next((call for one in program for call in one.calls_of("SFTTrainer")), None)
    if trainer is None or any(_MASKS.search(code(one)) for one in program):
        return
    what = _rows(program, trainer) or _rows_told(job, project, program)
    if not what:
        return
    yield Finding(
        f"`{claim.file}` wants the loss on answers alone (line {claim.line}), and `SFTTrainer` gets {what}: nothing masks"
        " the prompt, and the loss is on it as well.",
        place=trainer.place,
        evidence=Evidence(Level.TEXT, {"rows": what, "masked": False}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"{way_to_answers(project, unsloth=job.trainer is Trainer.UNSLOTH)}; or mend the text.",
            effort=Effort.MINUTES,
            accuracy="Loss on answers alone, as the text says.",
            measure="Print the labels of one row that are not -100.",
        ),
        also=(claim,),
    )


def _rows(program: Sequence[Script], trainer: Call) -> str:
    """What the trainer's rows are, in words; empty: that is not known."""
    if "formatting_func" in trainer.arguments:
        return "rows that `formatting_func` makes one text of"
    if any(_TEXT.search(code(one)) for one in program):
        return "rows of whole texts"
    if any(_MESSAGES.search(one.source) for one in program):
        return _WHOLE
    return ""


def _rows_told(job: Job, project: Project, program: Sequence[Script]) -> str:
    """Of rows that the program hands on as they are: by the data file, or by a document that shows one."""
    if any(_MADE.search(code(one)) for one in program):
        return ""
    data = project.data_of(job)
    if data is not None:
        return _WHOLE if data.format.lower().startswith(("messages", "sharegpt")) else ""
    shown = [text for text in project.documents.values() if _ROW.search(text)]
    return _WHOLE if shown and not any(_DIVIDED.search(text) for text in shown) else ""
