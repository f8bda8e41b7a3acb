"""Rows that TRL lays end to end, and whether the documents in them stay apart under each attention. By the sources of TRL
0.17 to 0.26 and of transformers 4.52 to 5.0."""

from dynotune.audit.facts.asked import at_least, attention
from dynotune.audit.facts.job import Job

TELLS_DOCUMENTS = (0, 19)
"""The release of TRL from which on packed rows have positions that begin anew: `pack_dataset` of 0.18.2 and 0.19.1."""

TELLS_EVERY_ATTENTION = (0, 23)
"""The release of TRL from which on its collator hands positions to every attention. Before it, `return_position_ids` is true
for flash attention alone, and any other gets a mask of ones."""

READS_POSITIONS = (4, 53)
"""The release of transformers from which on masks are made of positions, where there is no mask and no cache."""

BY_POSITIONS = ("bfd", "bfd_split", "ffd")
"""Packing strategies that keep where documents begin; `ffd` is what 0.19 calls `bfd`."""

DENSE = ("", "sdpa", "eager")
"""What takes a mask of every token against every other. "": the model's own, which is `sdpa`."""


def is_flat(job: Job) -> bool:
    """Whether a batch of TRL becomes one row whose documents are known by where their positions begin anew."""
    if at_least(job, "trl", *TELLS_DOCUMENTS) is False:
        return False
    packed = job.get("packing") is True and job.get("packing_strategy", "bfd") in BY_POSITIONS
    return packed or job.get("padding_free") is True


def leaks_without_flash(job: Job) -> bool:
    """Whether documents of a flat row see each other, since TRL gives its positions to flash attention alone."""
    used = attention(job)
    to_some = at_least(job, "trl", *TELLS_EVERY_ATTENTION) is False
    return is_flat(job) and to_some and used is not None and used in (*DENSE, "flex_attention")
