"""The last of a result: what was expected of it, and the closing sentence, which may speak of all the rest."""

from collections.abc import Sequence

from dynotune.bench.judging import expect, sentence
from dynotune.results.result import Result


def judged(result: Result, targets: Sequence[expect.Target]) -> Result:
    """With each target of `--expect` against what was measured, and its sentence."""
    if targets:
        result = result.model_copy(update={"expectations": expect.judge(tuple(targets), result)})
    return result.model_copy(update={"sentence": sentence.closing(result)})
