"""The length at which a script cuts its rows, where no setting of its trainer says so: what its tokenizer is called with."""

from dataclasses import replace

from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.setting import Setting
from dynotune.audit.read.python import files
from dynotune.audit.read.python.evaluator import Evaluator
from dynotune.audit.read.python.module import Module
from dynotune.audit.read.python.value import setting

_OWN = (Trainer.TRANSFORMERS, Trainer.TORCH)


def with_length(job: Job, evaluator: Evaluator) -> Job:
    """The job with `max_length`, where all calls that truncate in its files agree on one."""
    if job.trainer not in _OWN or job.setting("max_length") is not None:
        return job
    module, others = evaluator.module, evaluator.others
    named = (files.module_of(dotted, module, others) for dotted in module.imports.values())
    near = {one.file: one for one in (module, *(found[0] for found in named if found is not None))}
    said = [one for other in near.values() for one in _lengths(evaluator.fresh().elsewhere(other), other)]
    if not said or any(one.value != said[0].value for one in said):
        return job
    return replace(job, settings={**job.settings, "max_length": said[0]})


def _lengths(evaluator: Evaluator, module: Module) -> list[Setting]:
    found: list[Setting] = []
    for site in module.sites:
        words = {word.arg: word.value for word in site.node.keywords}
        if "max_length" not in words or not {"truncation", "padding"} & set(words):
            continue
        value = evaluator.fresh().value(words["max_length"], site.scope)
        if isinstance(value.value, int) and not isinstance(value.value, bool) and not value.others:
            found.append(setting("max_length", value, module.place(words["max_length"], "max_length")))
        else:
            return []
    return found
