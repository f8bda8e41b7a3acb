"""PAD090: much of what the model was given is padding, as a profile saw it."""

from dynotune.audit.profiled import seen
from dynotune.audit.rule import Group, Page, Rule, Subject

RULE = Rule(
    code="PAD090",
    name="profiled-padding",
    summary="Much of what the model was given is padding.",
    group=Group.PERFORMANCE,
    subject=Subject.PROFILE,
    check=seen("low-fill"),
    page=Page(
        what="Real tokens by processed tokens of the steps that were timed.",
        why=("Padding takes the same time as tokens. Documents side by side, isolated, give the same loss without it."),
        detected="E3: `dynotune audit -- COMMAND` runs the command for some steps and traces a few of them.",
        proven="`dynotune profile -- COMMAND` shows the same time in its table, and again after the change.",
        deliberate=("Rows of nearly equal lengths later in the epoch.",),
    ),
)
