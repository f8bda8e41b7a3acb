"""Promise: a model that cannot compute documents with their common beginning once is found out, with the reason."""

from typing import Any

import numpy as np
import pytest
import torch

from dynotune.model import families as families_module
from dynotune.model.attention import call, examine, packed_attention, why_not_packed, why_not_shared
from dynotune.model.attention.backends import reference
from dynotune.model.attention.observed import observed_calls
from dynotune.model.attention.probe import FAMILIES, Probe
from dynotune.model.families import trunk_of
from tests.model.attention.architectures import ARCHITECTURES, architecture

LONGEST = 64
CPU = torch.device("cpu")


def bfloat16() -> Any:
    return torch.autocast("cpu", dtype=torch.bfloat16)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_every_architecture_that_is_packed_shares(kind: str) -> None:
    model = architecture(kind)
    before = {name: p.clone() for name, p in model.state_dict().items()}
    assert why_not_shared(model, longest=LONGEST) is None
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())


@pytest.mark.parametrize("kind", ["llama", "gemma2", "qwen3_moe"])
def test_in_16_bits(kind: str) -> None:
    assert why_not_shared(architecture(kind), longest=LONGEST, autocast=bfloat16) is None


def test_what_cannot_be_packed_cannot_share_for_the_same_reason() -> None:
    model: Any = architecture("llama")
    model.register_forward_hook(lambda *_: None)
    reason = why_not_packed(model, longest=LONGEST)
    assert reason is not None
    assert why_not_shared(model, longest=LONGEST) == reason


def test_the_documents_that_are_tried_share_what_they_should() -> None:
    """Whatever the seed: a change of one document leaves the layout as it is."""
    probe = Probe(architecture("qwen2"), bfloat16, CPU, shared=True)
    for seeds in ((0, 0), (1, 1), (0, 1), (1, 0)):
        documents = [probe.documents(seed) for seed in seeds]
        at = 0
        for trunk, lengths in FAMILIES:
            family = [documents[i % 2][at + i] for i in range(len(lengths))]
            assert [len(ids) for ids in family] == list(lengths)
            assert trunk_of(family) == trunk
            at += len(lengths)


def test_it_says_which_backend_runs() -> None:
    (says,) = examine(architecture("qwen2"), longest=LONGEST, shared=True).says
    assert "one after another (exact, slower), 2 layers: there is no kernel for the CPU" in says


def test_calls_are_asked_for_with_shared_beginnings() -> None:
    """So that a kernel is chosen, and checked, for what it will get."""
    model = architecture("mistral")
    for shared in (False, True):
        calls = observed_calls(model, lambda: torch.autocast("cpu", enabled=False), shared)
        assert [one.asked.shared for _, one in calls] == [shared] * 2


# What follows shows that the examination can fail.


def forgetting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer that hands on the keywords that it knows, and gathers nothing."""
    right = call.packed_attention_call

    def without(*args: Any, key_rows: Any = None, key_segment_lengths: Any = None, **more: Any) -> Any:
        return right(*args, **more)

    monkeypatch.setattr("dynotune.model.attention.install.packed_attention_call", without)


def misaligned(monkeypatch: pytest.MonkeyPatch) -> None:
    right = reference.seen_by
    monkeypatch.setattr(reference, "seen_by", lambda q, n, w, d: right(q, n, w, d).new_ones(q, n).tril())


def running_on(monkeypatch: pytest.MonkeyPatch) -> None:
    right = families_module.lay_families

    def wrong(*args: Any) -> Any:
        laid = right(*args)
        laid.positions_T[:] = np.arange(len(laid.positions_T))
        return laid

    monkeypatch.setattr(families_module, "lay_families", wrong)


@pytest.mark.parametrize("wrong", [forgetting, misaligned, running_on])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_wrong_way_is_found(kind: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong(monkeypatch)
    model = architecture(kind)
    assert "do not come out as alone" in str(why_not_shared(model, longest=LONGEST))
    assert why_not_packed(model, longest=LONGEST) is None  # nothing else is wrong


def test_a_window_that_counts_from_the_first_query_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model whose window is longer than what is tried: it is shortened."""
    right = reference.seen_by
    monkeypatch.setattr(reference, "seen_by", lambda q, n, w, d: right(q, n, None if n > q else w, d))
    model = architecture("mistral", sliding_window=4096)
    assert "with a window of 4 tokens" in str(why_not_shared(model, longest=LONGEST))


def test_answers_that_see_each_other_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = families_module.lay_families

    def wrong(*args: Any) -> Any:
        laid = right(*args)
        start, trunk = int(laid.key_boundaries_S1[1]), FAMILIES[0][0]
        laid.key_rows_K[start] = trunk  # the first key of the second answer is the other answer's
        return laid

    monkeypatch.setattr(families_module, "lay_families", wrong)
    monkeypatch.setattr("dynotune.model.attention.examination._same", lambda *_: None)  # isolation finds it by itself
    assert "sees another" in str(why_not_shared(architecture("llama"), longest=LONGEST))


def test_a_model_with_packed_attention_in_it_is_examined_as_it_is() -> None:
    model = architecture("qwen3")
    with packed_attention(model, "reference"):
        assert why_not_shared(model, longest=LONGEST) is None
