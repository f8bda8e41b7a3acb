"""The plain forward pass: stock transformers, one document, all logits.

Legend of shapes: T tokens of the document, V vocabulary.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def logits_of_document(model: "PreTrainedModel", ids_T: Tensor) -> Tensor:
    """Logits [T, V] of one document, whose tokens see the document from its start and nothing else."""
    with _known_to_be_one_document():
        logits: Tensor = model(input_ids=ids_T[None], use_cache=False).logits
    return logits[0]


@contextmanager
def _known_to_be_one_document() -> Iterator[None]:
    """Answer transformers' question whether the row is packed without asking the device.

    Where no mask is given, transformers looks for jumps in the position ids, which makes the host wait for the GPU once a
    forward pass (measured on an H200: the only wait in the step). Here a row is one document by construction.
    """
    from transformers import masking_utils

    asked = masking_utils.find_packed_sequence_indices
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    try:
        yield
    finally:
        masking_utils.find_packed_sequence_indices = asked
