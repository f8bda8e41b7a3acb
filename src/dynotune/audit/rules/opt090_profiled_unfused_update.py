"""OPT090: the optimizer's update runs as many small kernels, as a profile saw it."""

from dynotune.audit.profiled import seen
from dynotune.audit.rule import Group, Page, Rule, Subject

RULE = Rule(
    code="OPT090",
    name="profiled-unfused-update",
    summary="The optimizer's update runs as many small kernels.",
    group=Group.PERFORMANCE,
    subject=Subject.PROFILE,
    check=seen("unfused-optimizer"),
    page=Page(
        what="Launches of a traced update, and their time.",
        why="Every launch reads and writes memory again; the fused update passes over it once.",
        detected="E3: `dynotune audit -- COMMAND` runs the command for some steps and traces a few of them.",
        proven="`dynotune profile -- COMMAND` shows the same time in its table, and again after the change.",
        deliberate=("A parameter that the fused kernel refuses, such as one on the CPU.",),
    ),
)
