"""Promise: a document's forward pass asks the device nothing, and nothing outside of it is told that it is one document."""

import threading
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import masking_utils, modeling_flash_attention_utils

from dynotune.model import forward
from dynotune.model.forward import logits_of_document
from tests.tiny import tiny_model

# Values of a tensor on "meta" cannot be read: asking for them fails, as asking a GPU would wait.
UNREADABLE = torch.arange(6, device="meta")[None]
QUESTIONS: list[tuple[ModuleType, str, tuple[Any, ...], Any]] = [
    (masking_utils, "find_packed_sequence_indices", (UNREADABLE,), None),
    (modeling_flash_attention_utils, "_is_packed_sequence", (UNREADABLE, 1), False),
]


@pytest.mark.parametrize(("module", "name", "args", "expected"), QUESTIONS)
def test_transformers_questions_are_answered_inside_and_only_there(
    module: ModuleType, name: str, args: tuple[Any, ...], expected: Any
) -> None:
    with forward._known_to_be_one_document():
        assert getattr(module, name)(*args) is expected
        elsewhere: list[Any] = []
        packed = (torch.tensor([[0, 1, 2, 0, 1]]), *args[1:])
        thread = threading.Thread(target=lambda: elsewhere.append(getattr(module, name)(*packed)))
        thread.start()
        thread.join()
    again = getattr(module, name)(*packed)
    assert torch.equal(elsewhere[0], again)
    assert again is not None
    assert bool(again.any())  # packed, as it was asked about


def test_a_forward_pass_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    forward._answer_for_transformers()
    real = masking_utils.find_packed_sequence_indices.__wrapped__  # type: ignore[attr-defined]
    monkeypatch.setattr(masking_utils, "find_packed_sequence_indices", lambda p: asked.append(p) or real(p))
    forward._answer(masking_utils, "find_packed_sequence_indices", None)
    model: Any = tiny_model()
    plain = model(torch.arange(5, 25)[None], use_cache=False).logits[0]
    assert len(asked) == 1  # an ordinary call does ask
    assert torch.equal(logits_of_document(model, torch.arange(5, 25)), plain)
    assert len(asked) == 1


def test_a_question_that_has_another_name_now_is_left_alone() -> None:
    forward._answer(ModuleType("empty"), "find_packed_sequence_indices", None)
