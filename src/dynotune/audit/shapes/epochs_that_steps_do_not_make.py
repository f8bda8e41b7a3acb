"""A comment or a text says how many epochs a run takes, and its number of steps comes to another number of rows."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import micro_batch, number
from dynotune.audit.facts.cards import gpus_told
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.told import rows_told
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.claimed_settings import ITS_COST, OTHERWISE, words_of
from dynotune.audit.shapes.claims_of_comments import comments_of

_NUMBERS = {"a": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "ten": 10}
_EPOCHS = re.compile(
    r"(?<![\w.,-])(\d{1,2}|a|one|two|three|four|five|ten)\s(?:full\s|whole\s|complete\s|single\s|train(?:ing)?\s)?(?:epochs?\b|pass(?:es)?\sover\b)",
    re.IGNORECASE,
)
_OF_A_PART = re.compile(
    r"\b(?:every|each|eval\w*|sav\w*|log\w*|half|quarter|warm\w*|patience|stop\w*)\b", re.IGNORECASE
)
OFF = 1.5
"""Times that the rows may differ from what is said: the last batch, rows that are left out, a rounded number."""

MOST_CARDS = 8
"""GPUs that a run of unknown size may have."""


def epochs_that_steps_do_not_make(job: Job, project: Project) -> Iterator[Said]:
    steps = number(job, "max_steps") or 0
    rows, accumulation = micro_batch(job), number(job, "gradient_accumulation_steps")
    if steps < 1 or not job.is_given("max_steps") or not rows or not accumulation or job.get("packing") is True:
        return
    data = project.data_of(job)
    told = rows_told(project)
    count = told[0] if told is not None else data.rows if data is not None and not data.sampled else 0
    if not count:
        return
    for place, text in _texts(job, project):
        epochs = _claimed(text)
        if not epochs:
            continue
        devices = gpus_told(job, project, text)
        seen = steps * rows * accumulation * (devices or 1)
        few = seen * (1 if devices else MOST_CARDS) * OFF < epochs * count
        if not few and (not devices or seen < epochs * count * OFF):
            continue
        key, called = job.place("max_steps"), job.called("max_steps")
        each = f"{rows * accumulation * (devices or 1):,.0f} rows{'' if devices else ' a process'}"
        yield Finding(
            f"`{text.strip()[:60]}` speaks of {epochs} epoch{'s' * (epochs > 1)}, and `{called}: {steps:g}`"
            f" of {each} each takes {seen:,.0f} of {count:,} rows: {seen / count:.2g} epochs.",
            place=key if key.file else place,
            also=(place, *((told[1],) if told is not None and told[1] != place else ())),
            evidence=Evidence(
                Level.RESOLVED, {"epochs said": epochs, "steps": steps, "rows seen": seen, "rows": count}
            ),
            stake=Stake(AtStake.CLARITY),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"Set `{job.called('num_train_epochs')}: {epochs}` and take `{called}` out, or mend the text.",
            ),
        )
        return


def _claimed(text: str) -> int:
    """The epochs that a sentence says the run takes; 0: none, or it speaks of something else as well."""
    for sentence in re.split(r"(?<=[a-z)\d])[.;] ", text[:400]):
        found = _EPOCHS.search(sentence)
        if found is None or OTHERWISE.search(ITS_COST.sub("", sentence)) or _OF_A_PART.search(sentence):
            continue
        return int(found[1]) if found[1].isdigit() else _NUMBERS[found[1].lower()]
    return 0


def _texts(job: Job, project: Project) -> Iterator[tuple[Place, str]]:
    """Comments at the key first, which say most surely what it is to be; then texts that speak of the only job."""
    key = job.place("max_steps")
    every = [(Place(file, line), text) for file, line, text in comments_of(job, project)]
    near = [one for one in every if one[0].file == key.file and 0 <= key.line - one[0].line <= 1]
    yield from near
    if len(project.jobs) != 1:
        return
    yield from (one for one in every if one not in near)
    for file, text in project.notes.items():
        yield from ((Place(file), line) for line in text.split("\n") if file in job.files)
    for file, text in project.documents.items():
        yield from ((Place(file, number), line) for number, line in enumerate(words_of(text.split("\n")), 1) if line)
