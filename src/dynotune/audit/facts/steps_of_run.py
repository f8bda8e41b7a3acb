"""How many updates a run takes, about, by whatever its files tell."""

import re

from dynotune.audit.facts.asked import number, rows_of_a_step
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project, data_named_by
from dynotune.audit.facts.told import rows_told

_NAMED = re.compile(r"(?<![a-zA-Z0-9])(\d{1,4})[kK](?![a-zA-Z0-9])")
"""`recipes_60k.jsonl`."""


def steps_of_run(job: Job, project: Project) -> float | None:
    """None: the number of rows is not told, or the batch is not."""
    given = number(job, "max_steps")
    if given is not None and given > 0:
        return given
    rows, epochs = rows_of_a_step(job), number(job, "num_train_epochs")
    if rows is None or not epochs:
        return None
    told = rows_told(project)
    name = _NAMED.search(data_named_by(job))
    held = told[0] if told is not None else int(name[1]) * 1_000 if name is not None else None
    return held * epochs / rows if held is not None else None
