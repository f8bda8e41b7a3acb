"""PRC090: matrix products ran in float32 where 16 bits were asked for, as a profile saw it."""

from dynotune.audit.profiled import seen
from dynotune.audit.rule import Group, Page, Rule, Subject

RULE = Rule(
    code="PRC090",
    name="profiled-full-precision",
    summary="Matrix products ran in float32 where 16 bits were asked for.",
    group=Group.PERFORMANCE,
    subject=Subject.PROFILE,
    check=seen("full-precision-products"),
    page=Page(
        what="The operand types of the matrix products of a traced step, by their FLOPs.",
        why=("A product in float32 takes a multiple of the time, and nothing prints that autocast did not reach it."),
        detected="E3: `dynotune audit -- COMMAND` runs the command for some steps and traces a few of them.",
        proven="`dynotune profile -- COMMAND` shows the same time in its table, and again after the change.",
        deliberate=("A head or router that is kept in float32 on purpose.",),
    ),
)
