"""Promise: what goes to host memory comes back bit for bit, as it lay, each storage once."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dynotune.measure.evidence import Phase, Source
from dynotune.model.activations.host import BACK, TO_HOST, InHostMemory, PlainCopies, _Part
from dynotune.model.activations.keeping import Around, Kept
from dynotune.model.activations.layers import checkpoint_layers
from dynotune.model.attention.decoder import text_decoder
from tests.model.activations.passes import batch_of, differ, model_of, pass_of, state_of
from tests.speedups.traced_steps import step_of


def put_in(model: Any, **more: Any) -> Around:
    around = Around(text_decoder(model), InHostMemory(PlainCopies(), least=64, **more))
    around.put_in()
    return around


@pytest.mark.parametrize("under_way", [0, 1 << 12, 1 << 30])
@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("again", [False, True], ids=["all", "layers' inputs"])
def test_the_same_bits_and_back_again(lora: bool, again: bool, under_way: int) -> None:
    model = model_of("qwen3", lora, dropout=0.2)
    right, before = pass_of(model, passes=2), state_of(model)
    layers = checkpoint_layers(model, {}) if again else None
    around = put_in(model, under_way=under_way)
    assert differ(pass_of(model, passes=2), right) == []
    gone = around.keeper.bytes  # type: ignore[attr-defined]
    inputs = 2 * 64 * 32 * 4  # of two layers, and what the last norm keeps behind them
    assert inputs < gone <= 4 * inputs if again else gone > 6 * inputs
    around.take_out()
    around.take_out()
    if layers:
        layers.uninstall()
    assert state_of(model) == before


@given(st.data())
def test_any_view_comes_back_as_it_lay(data: st.DataObject) -> None:
    """Slices, transposed and expanded tensors, several of one storage, in any order."""
    tokens = 8
    keeper = InHostMemory(PlainCopies(), least=1, under_way=data.draw(st.sampled_from([0, 100, 1 << 20])))
    keeper.begin(tokens)
    saved = []
    bases = [torch.randn(tokens, 6), torch.randn(4, tokens, 3), torch.randn(tokens * 2)]
    for _ in range(data.draw(st.integers(1, 12))):
        base = data.draw(st.sampled_from(bases))
        view = data.draw(
            st.sampled_from(
                [base, base.transpose(0, -1), base[..., :1], base.flatten(), base[None].expand(3, *base.shape)]
            )
        )
        saved.append((view.clone(), view.stride(), keeper.pack(view)))
    keeper.end()
    for right, stride, packed in data.draw(st.permutations(saved)):
        back = keeper.unpack(packed)
        assert torch.equal(back, right)
        assert back.stride() == stride
    assert not keeper._known


def test_only_what_has_the_pass_tokens_goes_and_each_storage_once() -> None:
    keeper = InHostMemory(PlainCopies(), least=1)
    keeper.begin(8)
    x, weight = torch.randn(8, 6), torch.nn.Parameter(torch.randn(8, 6))
    first, second = keeper.pack(x), keeper.pack(x.t())
    assert isinstance(first, _Part)
    assert isinstance(second, _Part)
    assert first.of is second.of
    assert keeper.bytes == x.nbytes
    for stays in (weight, weight.t(), torch.randn(7, 6), torch.randn(8, 100)[:, :2]):
        assert isinstance(keeper.pack(stays), Kept)
    keeper.end()


def test_what_is_written_to_on_its_way_is_an_error() -> None:
    keeper = InHostMemory(PlainCopies(), least=1)
    keeper.begin(8)
    x = torch.randn(8, 6)
    keeper.pack(x)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        keeper.end()


def test_evaluation_sends_nothing() -> None:
    model = model_of("llama", False)
    around = put_in(model)
    with torch.no_grad():
        model(input_ids=torch.ones(1, 64, dtype=torch.long))
    model.eval()
    model(input_ids=torch.ones(1, 64, dtype=torch.long))
    assert around.keeper.bytes == 0  # type: ignore[attr-defined]


def test_who_traces_a_step_is_told_how_many_bytes_went_and_came_back() -> None:
    model = model_of("llama", False)
    around = put_in(model)
    ids = torch.ones(1, 64, dtype=torch.long)
    step = step_of(model, lambda: model(input_ids=ids, labels=ids, use_cache=False).loss, micro_batches=2)

    def told(begin: str, phase: Phase, micro_batch: int) -> int:
        seen = step.matching([f"^{begin}"], Source.REGION, phase, micro_batch=micro_batch)
        return sum(int(one.name.removeprefix(begin).removesuffix(" bytes")) * one.count for one in seen)

    gone = around.keeper.bytes  # type: ignore[attr-defined]
    assert gone > 0
    for i in range(2):
        assert told(TO_HOST, Phase.FORWARD, i) == told(BACK, Phase.BACKWARD, i) == gone


def test_host_memory_is_free_behind_the_backward() -> None:
    """No cycle holds what was sent: it is gone without the collector."""
    import gc
    import weakref

    model = model_of("llama", False)
    around = put_in(model)
    from dynotune.model.attention import hidden_states, packed_attention

    hosts: list[Any] = []
    own = PlainCopies().to_host

    class Watched(PlainCopies):
        def to_host(self, flat: torch.Tensor) -> tuple[torch.Tensor, None]:
            host, done = own(flat)
            hosts.append(weakref.ref(host))
            return host, done

    around.keeper.copies = Watched()  # type: ignore[attr-defined]
    gc.collect()
    gc.disable()
    try:
        with packed_attention(model):
            hidden_states(model, batch_of()).sum().backward()
        assert hosts
        assert all(host() is None for host in hosts)
    finally:
        gc.enable()
