"""MEM091: weights lie on the CPU while a GPU is there, as a profile saw it."""

from dynotune.audit.profiled import seen
from dynotune.audit.rule import Group, Page, Rule, Subject

RULE = Rule(
    code="MEM091",
    name="profiled-weights-elsewhere",
    summary="Weights lie on the CPU while a GPU is there.",
    group=Group.PERFORMANCE,
    subject=Subject.PROFILE,
    check=seen("weights-elsewhere"),
    page=Page(
        what="The device of every group of weights, as the run has them.",
        why=(
            "They are copied or computed with at a small part of the speed. A missing flag or `device_map` "
            "does it without a word."
        ),
        detected="E3: `dynotune audit -- COMMAND` runs the command for some steps and traces a few of them.",
        proven="`dynotune profile -- COMMAND` shows the same time in its table, and again after the change.",
        deliberate=("Offloading, where the model fits nowhere else.",),
    ),
)
