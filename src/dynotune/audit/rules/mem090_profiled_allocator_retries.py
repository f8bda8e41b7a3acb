"""MEM090: the allocator ran out, gave memory back and tried again, as a profile saw it."""

from dynotune.audit.finding import AtStake
from dynotune.audit.profiled import seen
from dynotune.audit.rule import Group, Page, Rule, Subject

RULE = Rule(
    code="MEM090",
    name="profiled-allocator-retries",
    summary="The allocator ran out, gave memory back and tried again.",
    group=Group.MEMORY,
    subject=Subject.PROFILE,
    check=seen("allocator-retries", what=AtStake.MEMORY),
    page=Page(
        what="Retries that PyTorch's allocator counted during the steps.",
        why=(
            "Each one waits for the device and frees blocks that are asked for again at once; the next "
            "longer batch may not fit at all."
        ),
        detected="E3: `dynotune audit -- COMMAND` runs the command for some steps and traces a few of them.",
        proven="`dynotune profile -- COMMAND` shows the same time in its table, and again after the change.",
        deliberate=("Another process took memory only while this one was profiled.",),
    ),
)
