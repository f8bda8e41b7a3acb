"""A schedule that Lightning advances once an epoch, and that counts steps."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_STEPS = re.compile(
    r"estimated_stepping_batches|len\([\w.()]*(?:train_dataloader|train_loader|train_dl)"
    r"|\b(?:max|total|(?:num_)?train(?:ing)?)_steps\b|(?<![\w.])[1-9]\d{3,6}(?![\w.])"
)
"""What counts steps; a number of four digits and more is none of epochs."""
_MAKES = re.compile(r"(?:get_\w*schedule\w*|OneCycleLR|CosineAnnealingLR|LambdaLR|LinearLR|PolynomialLR)$")
_BY_HAND = re.compile(
    r"interval|lr_scheduler_step|automatic_optimization|lr_schedulers\(|sched\w*\.step\(", re.IGNORECASE
)


def advanced_once_an_epoch_by_lightning(script: Script) -> Iterator[Said]:
    """`return [optimizer], [scheduler]` without `"interval": "step"`."""
    if "configure_optimizers" not in script.source or not _STEPS.search(script.source):
        return
    for owner in ast.walk(script.tree):
        if not isinstance(owner, ast.ClassDef) or not any("Lightning" in ast.unparse(one) for one in owner.bases):
            continue
        if _BY_HAND.search(ast.unparse(owner)):
            continue
        for method in owner.body:
            if isinstance(method, ast.FunctionDef) and method.name == "configure_optimizers":
                yield from _of(script, method)


def _of(script: Script, method: ast.FunctionDef) -> Iterator[Said]:
    """Where the only schedule of the method counts steps, directly or by a name of it, and is returned."""
    text = ast.unparse(method)
    made = [one for one in ast.walk(method) if isinstance(one, ast.Call) and _MAKES.search(ast.unparse(one.func))]
    given = {
        target.id: ast.unparse(one.value)
        for one in ast.walk(method)
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    held = "|".join(name for name, value in given.items() if made and value == ast.unparse(made[0]))
    if len(made) != 1 or not held or not re.search(rf"return\b.*\b(?:{held})\b", text):
        return
    by_name = [key.value for key in made[0].keywords if key.arg not in ("last_epoch", "eta_min", "lr_lambda")]
    arguments = " ".join(ast.unparse(one) for one in (*made[0].args, *by_name))
    for _ in range(2):
        arguments += " " + " ".join(value for name, value in given.items() if re.search(rf"\b{name}\b", arguments))
    if not _STEPS.search(arguments):
        return
    yield Finding(
        f"`{ast.unparse(made[0].func)}` counts steps, and Lightning advances a schedule once an epoch unless it is told"
        ' `"interval": "step"`: the learning rate hardly leaves its warm-up, or its first value.',
        place=place_of(script, made[0]),
        evidence=Evidence(Level.TEXT, {"counted": "steps", "interval": None}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            'Return `{"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}`.',
            accuracy="The schedule that was meant.",
            measure="Log the learning rate (`LearningRateMonitor`).",
        ),
    )
