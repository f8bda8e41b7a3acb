"""ATT090: attention ran by a slow path, as a profile saw it."""

from dynotune.audit.profiled import seen
from dynotune.audit.rule import Group, Page, Rule, Subject

RULE = Rule(
    code="ATT090",
    name="profiled-slow-attention",
    summary="Attention ran by a slow path.",
    group=Group.PERFORMANCE,
    subject=Subject.PROFILE,
    check=seen("dense-mask", "padding-mask", "attention-written-out"),
    page=Page(
        what=(
            "The attention kernels of a traced step: scores written out to memory, or a dense mask over "
            "packed documents."
        ),
        why="Its time grows with the square of the row and not of its documents.",
        detected="E3: `dynotune audit -- COMMAND` runs the command for some steps and traces a few of them.",
        proven="`dynotune profile -- COMMAND` shows the same time in its table, and again after the change.",
        deliberate=("A model whose attention no fast kernel computes (soft-caps, unusual head sizes).",),
    ),
)
