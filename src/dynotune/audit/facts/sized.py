"""What is known of the model that a job trains: by its name, or by the sizes that a program of its own makes it with."""

from dynotune.audit.facts.asked import number
from dynotune.audit.facts.job import Job
from dynotune.audit.models import Known, known, reader


def sized(job: Job) -> Known | None:
    """None: it has no name that tells, and no sizes that could be followed. Of one of its own: blocks of 12 matrices of
    hidden times hidden, and an embedding."""
    layers, hidden, words = (number(job, f"own_model_{name}") for name in ("layers", "hidden", "vocabulary"))
    if job.get("model_name_or_path") or not layers or not hidden or not words:
        name = job.get("model_name_or_path")
        return known(name) or reader(name)
    billions = (12 * layers * hidden * hidden + words * hidden) / 1e9
    return Known("", int(words), round(billions, 3), int(hidden), int(layers))
