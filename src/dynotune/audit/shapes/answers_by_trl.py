"""How a script that trains by TRL, or by Unsloth, gets its loss on answers alone, in the version that it has."""

from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project

_FOR_COMPLETIONS = (0, 17)
_FOR_MESSAGES = (0, 19)
"""Releases of TRL with `completion_only_loss`, and with `assistant_only_loss`."""


def answers_by_trl(job: Job, project: Project) -> str:
    """A sentence of what to do, without its stop."""
    if job.trainer is Trainer.UNSLOTH:
        return "Call Unsloth's `train_on_responses_only` with the marks of the template before it trains"
    pinned = project.pinned("trl")
    if pinned is not None and pinned < _FOR_MESSAGES:
        now = (
            "give it `DataCollatorForCompletionOnlyLM` with the mark that answers begin with, and no packing"
            if pinned < _FOR_COMPLETIONS
            else "give it rows with `prompt` and `completion`"
        )
        return f"Take TRL 0.19 or later and set `assistant_only_loss=True`; or, with this one, {now}"
    return (
        "Give rows with `prompt` and `completion`, or `messages` with `assistant_only_loss=True` (and a template that marks"
        " answers by `{% generation %}`)"
    )
