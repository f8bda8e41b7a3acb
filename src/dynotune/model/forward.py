"""The plain forward pass: stock transformers, one document, all logits.

Legend of shapes: T tokens of the document, V vocabulary.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from typing import TYPE_CHECKING, Any

from torch import Tensor

from dynotune.model.without_cudnn import without_cudnn_attention

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_ONE_DOCUMENT = ContextVar("one document", default=False)  # of this thread only: another may run a packed model


def logits_of_document(model: "PreTrainedModel", ids_T: Tensor) -> Tensor:
    """Logits [T, V] of one document, whose tokens see the document from its start and nothing else."""
    with _known_to_be_one_document(), without_cudnn_attention():
        logits: Tensor = model(input_ids=ids_T[None], use_cache=False).logits
    return logits[0]


@contextmanager
def _known_to_be_one_document() -> Iterator[None]:
    """Answer transformers' question whether the row is packed without asking the device.

    Where no mask is given, transformers looks for jumps in the position ids, which makes the host wait for the GPU: once a
    forward pass where masks are made (measured on an H200: the only wait in the step), and once a layer in its flash
    attention (read in its source, not run). Here a row is one document by construction. Not covered: flash attention in
    layers that are recomputed in the backward pass, which runs outside; and a transformers that has renamed the functions
    that ask, which then asks (a test names them).
    """
    _answer_for_transformers()
    token = _ONE_DOCUMENT.set(True)
    try:
        yield
    finally:
        _ONE_DOCUMENT.reset(token)


@cache
def _answer_for_transformers() -> None:
    """Once a process: where it is known that there is one document, transformers' questions are answered here."""
    from transformers import masking_utils, modeling_flash_attention_utils

    _answer(masking_utils, "find_packed_sequence_indices", None)
    _answer(modeling_flash_attention_utils, "_is_packed_sequence", False)


def _answer(module: Any, question: str, one_document: Any) -> None:
    asked = getattr(module, question, None)
    if asked is None:
        return

    @wraps(asked)
    def answer(*args: Any, **kwargs: Any) -> Any:
        return one_document if _ONE_DOCUMENT.get() else asked(*args, **kwargs)

    setattr(module, question, answer)
