"""DST090: devices wait for one another, or for what they send, as a profile saw it."""

from dynotune.audit.profiled import seen
from dynotune.audit.rule import Group, Page, Rule, Subject

RULE = Rule(
    code="DST090",
    name="profiled-waiting-ranks",
    summary="Devices wait for one another, or for what they send.",
    group=Group.PERFORMANCE,
    subject=Subject.PROFILE,
    check=seen("exposed-communication", "ranks-wait"),
    page=Page(
        what=(
            "Communication of a traced step that no computation hides, and the wait of collectives for their last rank."
        ),
        why="Nothing else runs in that time on any device: one slow rank slows all.",
        detected="E3: `dynotune audit -- COMMAND` runs the command for some steps and traces a few of them.",
        proven="`dynotune profile -- COMMAND` shows the same time in its table, and again after the change.",
        deliberate=("Ranks that are on other machines than planned, for a test.",),
    ),
)
