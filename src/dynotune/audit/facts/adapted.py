"""Whether a job trains adapters, by its settings and by the words of its program."""

import re

from dynotune.audit.facts.asked import adapters
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.together import code, connected, leads_out

_WORDS = re.compile(r"lora|peft|adapter|FastLanguageModel|inject_adapter|prompt_?tuning|ia3", re.IGNORECASE)
_IMPORTS = re.compile(r"(?m)^\s*(?:from\s+\S+\s+import\s+(?:\([^)]*\)|[^\n(]*)|import\s+[^\n]*)")


def trains_adapters(job: Job, project: Project) -> bool | None:
    """None: it cannot be told. A script that was read whole, and has no word of adapters behind its imports, makes none."""
    told = adapters(job)
    start = next((one for one in project.scripts if one.file == job.home.file), None)
    if told is not None or start is None or job.holes:
        return told
    near = connected(start, project)
    if leads_out(near, project) or any(_WORDS.search(_IMPORTS.sub("", code(one))) for one in near):
        return None
    return False
