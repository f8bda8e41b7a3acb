"""HST094: some steps take far longer than the others, as a profile saw it."""

from dynotune.audit.profiled import seen
from dynotune.audit.rule import Group, Page, Rule, Subject

RULE = Rule(
    code="HST094",
    name="profiled-slow-steps",
    summary="Some steps take far longer than the others.",
    group=Group.PERFORMANCE,
    subject=Subject.PROFILE,
    check=seen("slow-log", "slow-evaluate", "slow-save", "periodic", "periodic-slow-down"),
    page=Page(
        what=(
            "Steps with logging, evaluations or checkpoints in them, or every so many steps without a known "
            "cause, by what they take beyond the usual step."
        ),
        why="A mean hides them. What comes every ten steps and takes three is a third of the time.",
        detected="E3: `dynotune audit -- COMMAND` runs the command for some steps and traces a few of them.",
        proven="`dynotune profile -- COMMAND` shows the same time in its table, and again after the change.",
        deliberate=("A short profile that holds one evaluation weighs it more than a run would.",),
    ),
)
