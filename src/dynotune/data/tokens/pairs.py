"""A pair as two documents: prompt + chosen and prompt + rejected, each tokenised like a prompt with its completion."""

from collections.abc import Sequence

import numpy as np

from dynotune.data.examples import IGNORE, Example
from dynotune.data.rows import BadRow, Row


def sides_of(row: Row) -> tuple[Row, ...]:
    """A pair's chosen and rejected side, as rows with a prompt and a completion; any other row as it is.

    Both have the same prompt object. What was noticed about the row stands on the first.
    """
    if row.kind != "pair":
        return (row,)
    chosen, rejected = (
        Row(
            row.place,
            "prompt_completion",
            prompt=row.prompt,
            completion=answer,
            tools=row.tools,
            chat_template_kwargs=row.chat_template_kwargs,
            notices=notices,
        )
        for answer, notices in ((row.chosen, row.notices), (row.rejected, []))
    )
    return chosen, rejected


def is_other_side(row: Row, other: Row) -> bool:
    """Whether two rows are sides of one pair, so that all but their answers is the same."""
    return (
        row.prompt is other.prompt
        and row.tools is other.tools
        and row.chat_template_kwargs is other.chat_template_kwargs
    )


def joined(
    row: Row, chosen: Example | Sequence[Example] | BadRow, rejected: Example | Sequence[Example] | BadRow
) -> list[Example] | BadRow:
    """Both sides of a pair as examples [chosen, rejected]. One bad side makes the whole pair bad.

    As in TRL both answers begin where the first of them leaves the prompt's tokens, so that neither has a label that the
    other has as prompt. Sides that become the same tokens are refused.
    """
    for side, made in (("chosen", chosen), ("rejected", rejected)):
        if isinstance(made, BadRow):
            return BadRow(made.place, made.reason, f"`{side}`: {made.detail}", made.beginning)
    assert isinstance(chosen, Example)
    assert isinstance(rejected, Example)
    if np.array_equal(chosen.ids_T, rejected.ids_T):
        detail = "`chosen` and `rejected` become the same tokens: the chat template takes away what tells them apart"
        return BadRow(row.place, "chosen-equals-rejected", detail)
    starts = [int((side.labels_T != IGNORE).argmax()) for side in (chosen, rejected)]
    return [_labelled_from(side, min(starts)) for side in (chosen, rejected)]


def _labelled_from(side: Example, start: int) -> Example:
    labels_T = side.ids_T.copy()
    labels_T[:start] = IGNORE
    return Example(side.ids_T, labels_T, side.place)
