"""HST092: the device waits for the host to launch, as a profile saw it."""

from dynotune.audit.profiled import seen
from dynotune.audit.rule import Group, Page, Rule, Subject

RULE = Rule(
    code="HST092",
    name="profiled-host-bound",
    summary="The device waits for the host to launch.",
    group=Group.PERFORMANCE,
    subject=Subject.PROFILE,
    check=seen("host-bound"),
    page=Page(
        what="Gaps between kernels in which the host was still busy launching, by the trace of a step.",
        why=(
            "Small micro-batches and many small kernels cost more to launch than to run; compiled layers or "
            "larger micro-batches of the same step launch less."
        ),
        detected="E3: `dynotune audit -- COMMAND` runs the command for some steps and traces a few of them.",
        proven="`dynotune profile -- COMMAND` shows the same time in its table, and again after the change.",
        deliberate=("A model so small that one process a device can never keep it busy.",),
    ),
)
