"""Promise: what a proof traces of a step shows all that the whole step would, and is not more where the step is longer."""

import numpy as np
import pytest

from dynotune.data.examples import Example, Examples
from dynotune.data.rows import Place
from dynotune.plan.layout import MicroBatch
from dynotune.plan.plan import Step
from dynotune.plan.truncation import Spans, truncate
from dynotune.train.traced_part import traced_part

LENGTHS = (5, 3, 4, 6, 2, 7, 3, 4, 5)


def units() -> Spans:
    ids = [np.arange(n, dtype=np.int32) for n in LENGTHS]
    return truncate(Examples.from_list(Example(x, x, Place("rows", i)) for i, x in enumerate(ids)), None, "keep_start")


def step(*batches: tuple[int, ...]) -> Step:
    """Micro-batches that hold these rows."""
    rows = np.array([row for batch in batches for row in batch])
    laid_out = [
        MicroBatch(np.array(batch, np.int64), 64, real_tokens=sum(LENGTHS[row] for row in batch)) for batch in batches
    ]
    return Step(2, 1.0, rows, np.array(LENGTHS)[rows.astype(np.int64)], laid_out, sum(LENGTHS), 1)


@pytest.mark.parametrize("micro_batches", [0, 1, 2])
def test_few_micro_batches_are_all_traced(micro_batches: int) -> None:
    sample = traced_part(step(*((i,) for i in range(micro_batches))), units())
    assert sample.numbers == tuple(range(micro_batches))
    assert sample.is_whole


@pytest.mark.parametrize("micro_batches", [3, 9])
def test_of_many_the_first_and_the_last_are(micro_batches: int) -> None:
    """The last one is where ranks add up, and what it leaves is updated."""
    sample = traced_part(step(*((i,) for i in range(micro_batches))), units())
    assert (sample.numbers, sample.of, sample.is_whole) == ((0, micro_batches - 1), micro_batches, False)


def test_a_rank_whose_first_and_last_hold_no_document_traces_one_that_does() -> None:
    assert traced_part(step((), (0,), (1,), ()), units()).numbers == (0, 1, 3)


def test_documents_side_by_side_are_traced_wherever_they_are() -> None:
    """By them packed execution is told from the plain path. Control: where the last one shows it, no other is taken."""
    assert traced_part(step((0,), (1,), (2, 3), (4, 5, 6), (7,)), units()).numbers == (0, 3, 4)
    assert traced_part(step((0,), (1, 2), (3,), (4, 5, 6), (7, 8)), units()).numbers == (0, 4)


def test_a_beginning_that_is_laid_out_once_is_traced_wherever_it_is() -> None:
    """What is laid out is less than the documents have."""
    one = step((0, 1), (2, 3), (4, 5), (6, 7))
    shares = MicroBatch(one.micro_batches[2].rows, 64, real_tokens=7)
    one.micro_batches[2] = shares
    assert traced_part(one, units()).numbers == (0, 2, 3)
    one.micro_batches[3] = MicroBatch(one.micro_batches[3].rows, 64, real_tokens=5)
    assert traced_part(one, units()).numbers == (0, 3)


def test_a_rank_whose_micro_batch_is_empty_traces_it() -> None:
    assert traced_part(step(()), units()).numbers == (0,)
