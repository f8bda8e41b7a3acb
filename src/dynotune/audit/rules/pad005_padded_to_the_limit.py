"""PAD005: every row is padded to the longest length there may be."""

import re
from collections.abc import Iterator

import numpy as np

from dynotune.audit.facts.asked import max_length, on_gpu
from dynotune.audit.facts.data import DataFacts
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.lengths import usual_row
from dynotune.audit.facts.padded import padded_to_a_limit
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_AXOLOTL = (
    "base_model: Qwen/Qwen2.5-0.5B\ndatasets:\n  - path: data.jsonl\n    type: chat_template\nsequence_len: 4096\n"
    "micro_batch_size: 4\n"
)


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.get("packing") is True or job.get("torch_compile") is True or not on_gpu(job):
        return  # one shape is what compiled code is for
    data = project.data_of(job)
    if job.get("pad_to_sequence_len") is True and job.get("packing") is False:
        length = max_length(job)
        real, told = _real(data, length), _told(data, length, project)
        real = real or told
        if real is None or real <= 0.8:
            shown = f" of {length:,} tokens" if length else ""
            yield Finding(
                f"`{job.called('pad_to_sequence_len')}: true` without packing pads every row to the limit{shown}"
                f"{_measured(real, told)}.",
                place=job.place("pad_to_sequence_len"),
                evidence=Evidence(Level.RESOLVED, {"max_length": length, "real share": real}),
                stake=Stake(AtStake.TIME, 0.0, None if real is None else 1 - real),
                remedy=Remedy(
                    Risk.SAFE,
                    f"Set `{job.called('pad_to_sequence_len')}: false`: batches are padded to their longest row.",
                    (job.set("pad_to_sequence_len", False),),
                ),
            )
    packing = job.setting("packing")
    if packing is not None and not packing.is_known:
        return
    for padded in padded_to_a_limit(job, project):
        real, told = _real(data, padded.length), _told(data, padded.length, project)
        real = real or told
        if real is not None and real > 0.8:
            continue
        shown = f" ({padded.length:,} tokens)" if padded.length else ""
        yield Finding(
            f"`{padded.by}` pads {padded.what}{shown}{_measured(real, told)}.",
            place=padded.place,
            evidence=Evidence(Level.TEXT, {"by": padded.by, "limit": padded.length, "real share": real}),
            stake=Stake(AtStake.TIME, 0.0, None if real is None else 1 - real),
            remedy=Remedy(
                Risk.SAFE,
                f"Pad to the longest row of a batch, in the collator ({_by_what(job, project)}), and to a multiple of 8.",
                effort=Effort.MINUTES,
                measure="dynotune profile -- python train.py",
            ),
        )


def _by_what(job: Job, project: Project) -> str:
    """What pads a batch in a program of this kind."""
    text = "\n".join(one.source for one in project.scripts if one.file in job.files)
    if "transformers" not in text and job.trainer is Trainer.TORCH:
        return "`torch.nn.utils.rnn.pad_sequence`"
    if "DataCollatorForLanguageModeling" in text:
        return "`DataCollatorForLanguageModeling` does it, where rows come without padding"
    if _OF_ROWS.search(text):
        return "`DataCollatorWithPadding`"
    return "`DataCollatorForSeq2Seq`, which pads labels with -100, or `tokenizer.pad(rows, padding='longest')`"


_OF_ROWS = re.compile(r"ForSequenceClassification|ForMultipleChoice|num_labels|CrossEncoder|AutoModel\.from_pretrained")


def _real(data: DataFacts | None, length: int | None) -> float | None:
    return float(np.minimum(data.lengths, length).mean() / length) if data and data.lengths and length else None


def _told(data: DataFacts | None, length: int | None, project: Project) -> float | None:
    """As documents tell the mean length of a row, where no data was measured."""
    usual = usual_row(project) if data is None or not data.lengths else None
    return min(usual, length) / length if usual and length else None


def _measured(real: float | None, told: float | None) -> str:
    by = "by the lengths that the documents tell, " if told is not None else ""
    return f": {by}{real:.0%} of what is computed is real" if real is not None else ""


RULE = Rule(
    code="PAD005",
    name="padded-to-the-limit",
    summary="Every row is padded to the limit although rows are not packed.",
    group=Group.PERFORMANCE,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="Padding to a fixed length makes every row as long as the longest that is allowed. With packing rows are nearly"
        " full and little is added; without, most of it is padding.",
        why="Padding is computed like text.",
        detected="E1: `pad_to_sequence_len` with packing off; with data, or a mean length that the"
        " documents tell, the share of real tokens. E0: a tokenizer that is"
        " called with `padding='max_length'` in a file of the training job, outside of what evaluates or generates; a"
        " collator whose rectangle, or a row whose tensor or list, is filled up to a number that it was given.",
        proven="`dynotune plan --config sft.yaml` prints the real lengths.",
        deliberate=("One shape for compiled code, or memory that must be known in advance.",),
        sources=("Axolotl's documentation of `pad_to_sequence_len`",),
    ),
    bad=Example({"run.yml": f"{_AXOLOTL}sample_packing: false\npad_to_sequence_len: true\n"}, says="4,096"),
    good=Example({"run.yml": f"{_AXOLOTL}sample_packing: true\npad_to_sequence_len: true\n"}),
)
