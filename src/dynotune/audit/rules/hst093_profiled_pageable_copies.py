"""HST093: copies to the device come from memory that is not pinned, as a profile saw it."""

from dynotune.audit.profiled import seen
from dynotune.audit.rule import Group, Page, Rule, Subject

RULE = Rule(
    code="HST093",
    name="profiled-pageable-copies",
    summary="Copies to the device come from memory that is not pinned.",
    group=Group.PERFORMANCE,
    subject=Subject.PROFILE,
    check=seen("pageable-copies"),
    page=Page(
        what="Copies of a traced step that the driver marks as pageable, and what they took.",
        why=(
            "A pageable copy goes through a buffer of the driver and blocks the host; a pinned one runs "
            "beside the step."
        ),
        detected="E3: `dynotune audit -- COMMAND` runs the command for some steps and traces a few of them.",
        proven="`dynotune profile -- COMMAND` shows the same time in its table, and again after the change.",
        deliberate=("Little memory on the host: pinned memory is never swapped out.",),
    ),
)
