"""What a run tells a bench of commands that has started it (`dynotune bench -- dynotune sft ...`)."""

import json
import os
from pathlib import Path

from dynotune.train.run import Run

VARIABLE = "DYNOTUNE_BENCH_REPORT"
"""Names the file; `dynotune.bench.foreign.protocol` reads it."""


def tell_bench(run: Run) -> None:
    """Write tokens and seconds where a bench asks for them: without the first steps, where there are others."""
    path = os.environ.get(VARIABLE)
    if not path or not run.ranks.is_first:
        return
    progress = run.trainee.progress
    totals = progress.steady if progress.steady.steps else progress.totals
    tokens = max(totals.sequence_tokens, totals.real_tokens)  # of documents, as others count them who share nothing
    told = {
        "tokens": tokens,
        "seconds": totals.seconds,
        "label_tokens": totals.label_tokens,
        "processed_tokens": tokens + totals.processed_tokens - totals.real_tokens,
        "steps": totals.steps,
        "examples": totals.examples,
        "devices": run.ranks.world,
    }
    Path(path).write_text(json.dumps(told), encoding="utf-8")
