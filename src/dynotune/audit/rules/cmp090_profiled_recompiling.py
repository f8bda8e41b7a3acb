"""CMP090: torch.compile made new graphs after the warm-up, as a profile saw it."""

from dynotune.audit.profiled import seen
from dynotune.audit.rule import Group, Page, Rule, Subject

RULE = Rule(
    code="CMP090",
    name="profiled-recompiling",
    summary="torch.compile made new graphs after the warm-up.",
    group=Group.PERFORMANCE,
    subject=Subject.PROFILE,
    check=seen("recompiling"),
    page=Page(
        what="Graphs that were compiled in steps that were timed.",
        why="Each takes seconds to minutes, and shapes that go on changing never let it end.",
        detected="E3: `dynotune audit -- COMMAND` runs the command for some steps and traces a few of them.",
        proven="`dynotune profile -- COMMAND` shows the same time in its table, and again after the change.",
        deliberate=("A profile that began before all shapes had come by.",),
    ),
)
