"""A trainer's own loss is a mean over its micro-batch where `Trainer` trusts it to have counted the labels of the"
" step."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import number, version
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import imported, together
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import known
from dynotune.audit.shapes.divided_twice import OF_TRAINERS, divisions, methods, returned

_TOLD = frozenset({"llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3_text", "phi3", "olmo2"})
"""Families whose `forward` takes the number of labels."""

_SINCE = (4, 48)
_MEAN = re.compile(r"\.mean\(|cross_entropy\(|CrossEntropyLoss|criterion\(|loss_f(?:n|ct|unc)\(|kl_div\(|BCEWithLogits")
_COUNTS = re.compile(
    r"num_items|kwargs|super\(\)|accum|reduction=['\"]sum|accepts_loss_kwargs|\.sum\(\)\s*/|(?<!\.)\.loss\b"
)


def mean_that_nobody_divides(script: Script, project: Project) -> Iterator[Said]:
    """`compute_loss` that takes `num_items_in_batch`, does not look at it, and returns a mean."""
    if "compute_loss" not in script.source or "accepts_loss_kwargs" in script.source:
        return
    for owner, method in methods(script, "compute_loss", OF_TRAINERS):
        users = [one for one in together(script, project) if one.calls_of(owner.name)]
        yield from _of(method, script, users, project)
    for user in together(script, project):
        for node in ast.walk(user.tree) if "compute_loss_func" in user.source else ():
            named = node.value if isinstance(node, ast.keyword) and node.arg == "compute_loss_func" else None
            for one in script.tree.body if isinstance(named, ast.Name) else ():
                if isinstance(one, ast.FunctionDef) and isinstance(named, ast.Name) and one.name == named.id:
                    yield from _of(one, script, [user], project, told=True)


def _of(
    method: ast.FunctionDef, script: Script, users: list[Script], project: Project, *, told: bool = False
) -> Iterator[Said]:
    body = "\n".join(ast.unparse(one) for one in method.body)
    if _COUNTS.search(body) or not _MEAN.search(body) or "labels" not in body + ast.unparse(method.args):
        return  # without labels in the batch `Trainer` counts none, and divides
    if not any("ForCausalLM" in one.source for one in together(script, project)):
        return
    if any(divisions(value, method, script, imported(script, project)) for value in returned(method)):
        return
    files = {one.file for one in users}
    for job in project.jobs:
        every = number(job, "gradient_accumulation_steps")
        if not files & set(job.files) or not every or every < 2 or not _is_told(job, project, told):
            continue
        value = returned(method)[-1] if returned(method) else None
        if value is None:
            return
        why = "`compute_loss_func`" if told else f"a model of the family `{_family(job)}`"
        yield Finding(
            f"`{method.name}` returns a mean over its micro-batch, and `Trainer` divides nothing behind"
            f" {why}: it counts on a sum over `num_items_in_batch`. Gradients of {every:g} micro-batches are added:"
            f" {every:g} times too large.",
            place=place_of(script, _mean(method) or value),
            evidence=Evidence(Level.RESOLVED, {"gradient_accumulation_steps": every, "num_items_in_batch": "not used"}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Add losses up (`reduction='sum'`) and divide by `num_items_in_batch` where it is given, by the"
                " micro-batch's labels"
                " where it is not.",
                accuracy="The updates that were meant; clipping no longer cuts nearly every step.",
                measure="Compare the gradient's norm with one large batch.",
            ),
            also=(job.place("gradient_accumulation_steps"), place_of(script, value)),
        )
        return


def _mean(method: ast.FunctionDef) -> ast.AST | None:
    """The last statement that takes a mean."""
    found = [one for one in ast.walk(method) if isinstance(one, ast.Assign) and _MEAN.search(ast.unparse(one))]
    return max(found, key=lambda one: one.lineno, default=None)


def _family(job: Job) -> str:
    model = known(job.get("model_name_or_path"))
    return model.model_type if model is not None else ""


def _is_told(job: Job, project: Project, told: bool) -> bool:
    release = project.pinned("transformers") or version(job, "transformers") or (9,)
    if job.trainer not in (Trainer.TRANSFORMERS, Trainer.TRL) or release < _SINCE:
        return False
    return told or _family(job) in _TOLD
