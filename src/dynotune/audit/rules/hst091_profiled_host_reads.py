"""HST091: values are read from the device while a step runs, as a profile saw it."""

from dynotune.audit.profiled import seen
from dynotune.audit.rule import Group, Page, Rule, Subject

RULE = Rule(
    code="HST091",
    name="profiled-host-reads",
    summary="Values are read from the device while a step runs.",
    group=Group.PERFORMANCE,
    subject=Subject.PROFILE,
    check=seen("host-reads"),
    page=Page(
        what=(
            "Calls that wait for the device in the middle of a step (`.item()`, `.cpu()`, printing a "
            "tensor), and what the device idled behind them."
        ),
        why=("The host cannot launch ahead while it waits, so the device runs dry and waits for the host in turn."),
        detected="E3: `dynotune audit -- COMMAND` runs the command for some steps and traces a few of them.",
        proven="`dynotune profile -- COMMAND` shows the same time in its table, and again after the change.",
        deliberate=("A value decides what the step does next, as a loss that may stop it.",),
    ),
)
