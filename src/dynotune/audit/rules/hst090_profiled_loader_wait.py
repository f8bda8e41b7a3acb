"""HST090: steps wait for data, as a profile saw it."""

from dynotune.audit.profiled import seen
from dynotune.audit.rule import Group, Page, Rule, Subject

RULE = Rule(
    code="HST090",
    name="profiled-loader-wait",
    summary="Steps wait for data.",
    group=Group.PERFORMANCE,
    subject=Subject.PROFILE,
    check=seen("slow-loader"),
    page=Page(
        what="The time in which the loop waited for its next batch, in steps that were timed.",
        why=(
            "The device does nothing meanwhile. Workers that make batches ahead hide it, unless they are "
            "slower than the device."
        ),
        detected="E3: `dynotune audit -- COMMAND` runs the command for some steps and traces a few of them.",
        proven="`dynotune profile -- COMMAND` shows the same time in its table, and again after the change.",
        deliberate=("The first epoch reads from a slow disk, and later ones from memory.",),
    ),
)
