"""Promise: what is done about activations is seen in a trace, in every layer, and its absence is seen, too."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from dynotune import ConfigError, SFTConfig
from dynotune.measure.evidence import Evidence, Phase, Seen, Source
from dynotune.measure.traces.step import Tracer
from dynotune.model.activations import cheap
from dynotune.model.activations.budget import Budget
from dynotune.model.activations.keeping import Kept
from dynotune.model.activations.layers import are_checkpointed
from dynotune.model.activations.remade import Remaking, _Part
from dynotune.model.attention import hidden_states, packed_attention
from dynotune.model.precision import Precision
from dynotune.speedups.activation import POLICIES, asked_policy
from dynotune.speedups.choose import decide
from dynotune.speedups.contract import Context, Installation
from dynotune.speedups.expectation import Expectation, Observation, Verdict
from dynotune.speedups.judge import judge
from dynotune.speedups.registry import speedups
from dynotune.speedups.site import Site
from tests.model.activations.passes import CPU, batch_of, differ, model_of, pass_of, state_of

FULL = Precision(torch.float32, False)
LAYERS = 2


def context_of(model: Any, **keys: Any) -> Context:
    return Context(SFTConfig(**keys), model, CPU, torch.float32, FULL, longest=64)


def put_in(name: str, model: Any, **keys: Any) -> tuple[Context, Installation]:
    context = context_of(model, **keys)
    found = speedups()[name].install(Site(context, lambda: torch.autocast("cpu", enabled=False)))
    assert isinstance(found, Installation), found
    return context, found


def traced(model: Any, micro_batches: int = 2) -> Evidence:
    layers = [name for name, module in model.named_modules() if type(module).__name__.endswith("DecoderLayer")]
    tracer = Tracer(model, layers, CPU)
    with packed_attention(model), tracer.step(2) as step:
        for i in range(micro_batches):
            with step.forward(i):
                loss = hidden_states(model, batch_of((9 + i, 14))).square().mean()
            with step.backward(i):
                loss.backward()
    assert step.evidence is not None
    return step.evidence


def verdict(expected: Sequence[Expectation], evidence: Evidence) -> Observation:
    return judge(expected, evidence)


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("name", ["activation_full", "activation_selective"])
def test_it_is_seen_in_every_layer_and_not_seen_where_it_is_off(name: str, lora: bool) -> None:
    model = model_of("llama", lora)
    right, before = pass_of(model), state_of(model)
    context, installed = put_in(name, model)
    expected = speedups()[name].expect(context, installed)
    seen = verdict(expected, traced(model))
    assert (seen.verdict, seen.seen, seen.of) == (Verdict.ENGAGED, LAYERS, LAYERS), seen
    assert differ(pass_of(model), right) == []
    installed.uninstall()
    assert state_of(model) == before
    off = verdict(expected, traced(model))
    assert (off.verdict, off.seen) == (Verdict.NOT_ENGAGED, 0), off


def test_a_layer_that_is_left_out_is_named() -> None:
    model = model_of("llama", False)
    context, installed = put_in("activation_full", model)
    model.model.layers[1].gradient_checkpointing = False
    seen = verdict(speedups()["activation_full"].expect(context, installed), traced(model))
    assert (seen.verdict, seen.seen, seen.of) == (Verdict.PARTIAL, 1, LAYERS)
    assert any("layers.1" in place for place in seen.missing)


def test_selective_that_computes_products_again_is_no_selective() -> None:
    """A planted lie: whole layers are computed again where only cheap results should be."""
    model = model_of("llama", False)
    context, selective = put_in("activation_selective", model)
    expected = speedups()["activation_selective"].expect(context, selective)
    selective.uninstall()
    _, whole = put_in("activation_full", model)
    seen = verdict(expected, traced(model))
    assert seen.verdict is not Verdict.ENGAGED
    assert any("product" in line for line in seen.against)
    whole.uninstall()


def kept_norms(own: Callable[..., Any]) -> Callable[..., Any]:
    """A lie in the place of `Remaking.pack`."""

    def pack(self: Remaking, tensor: torch.Tensor) -> Any:
        packed = own(self, tensor)
        return Kept.of(tensor) if isinstance(packed, _Part) and "norm" in packed.of.name else packed

    return pack


@pytest.mark.parametrize("lie", ["nobody says what norms gave", "what is known of norms is kept all the same"])
def test_selective_that_leaves_norms_alone_is_no_selective(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if lie.startswith("nobody"):
        monkeypatch.setattr(cheap, "_remake_norm", lambda *_: None)
    else:
        monkeypatch.setattr(Remaking, "pack", kept_norms(Remaking.pack))
        monkeypatch.setattr(cheap._OwnAgain, "__call__", lambda self, x: type(self.module).forward(self.module, x))
    model = model_of("llama", False)
    context, selective = put_in("activation_selective", model)
    seen = verdict(speedups()["activation_selective"].expect(context, selective), traced(model))
    assert seen.verdict is not Verdict.ENGAGED
    assert any("norm" in line for line in seen.against)
    selective.uninstall()


@pytest.mark.parametrize("lie", [False, True])
def test_norms_of_other_operations_are_known_by_what_was_asked_for_again(
    lie: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gemma 4's are powers, which the backward pass of any norm has too."""
    model = model_of("llama", False)

    def by_power(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x * torch.pow(x.square().mean(-1, keepdim=True) + self.variance_epsilon, -0.5)

    monkeypatch.setattr(type(model.model.norm), "forward", by_power)
    context, selective = put_in("activation_selective", model)
    if lie:
        monkeypatch.setattr(Remaking, "pack", kept_norms(Remaking.pack))
    seen = verdict(speedups()["activation_selective"].expect(context, selective), traced(model))
    assert (seen.verdict is Verdict.ENGAGED) is not lie, seen
    selective.uninstall()


def test_copies_to_the_host_are_held_against_the_bytes_that_were_counted() -> None:
    expected = speedups()["activation_offload"].expect(
        context_of(model_of("llama", False)), Installation(lambda: None, detail=False)
    )

    def evidence(*seen: Seen, device: str = "cuda", events: bool = True) -> Evidence:
        kernel = Seen("gemm", Source.KERNEL, Phase.FORWARD, micro_batch=0)
        return Evidence(2, device, events, (*seen, kernel) if events else seen, 2)

    def out(bytes_: int, i: int = 0, phase: Phase = Phase.FORWARD) -> Seen:
        return Seen("Memcpy DtoH (Device -> Pinned)", Source.COPY, phase, micro_batch=i, bytes=bytes_)

    def back(bytes_: int, i: int = 0) -> Seen:
        return Seen("Memcpy HtoD (Pinned -> Device)", Source.COPY, Phase.BACKWARD, micro_batch=i, bytes=bytes_)

    def counted(bytes_: int, i: int = 0) -> tuple[Seen, Seen]:
        """Sent at once, and fetched in two."""
        sent, half = f"activations to the host: {bytes_} bytes", f"activations back from the host: {bytes_ // 2} bytes"
        return (
            Seen(sent, Source.REGION, Phase.FORWARD, micro_batch=i),
            Seen(half, Source.REGION, Phase.BACKWARD, micro_batch=i, count=2),
        )

    right = (*counted(1000), out(600), out(400), back(1000), *counted(0, 1))
    assert verdict(expected, evidence(*right)).verdict is Verdict.ENGAGED
    assert verdict(expected, evidence(*right, out(64), back(64, 1))).verdict is Verdict.ENGAGED, "others copy, too"
    lies = {
        "any copy": (out(1000), back(1000)),
        "too little out": (*counted(1000), out(999), back(1000)),
        "too little back": (*counted(1000), out(1000), back(999)),
        "in the other micro-batch": (*counted(1000), out(1000, 1), back(1000)),
        "in another phase": (*counted(1000), out(1000, 0, Phase.BACKWARD), back(1000)),
        "nothing was large enough": (*counted(0), out(1000), back(1000)),
        "counted and not copied": counted(1000),
    }
    for lie, seen in lies.items():
        found = verdict(expected, evidence(*seen))
        assert found.verdict in (Verdict.NOT_ENGAGED, Verdict.PARTIAL), lie
        assert "the bytes that were counted" in found.against[0], lie
    assert verdict(expected, evidence(*right, events=False)).verdict is Verdict.UNKNOWN
    untold = (*counted(1000), out(0), back(0))
    assert verdict(expected, evidence(*untold)).verdict is Verdict.UNKNOWN


def test_what_was_switched_on_by_whoever_made_the_model_is_left_and_seen() -> None:
    model = model_of("llama", False)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    context, installed = put_in("activation_full", model)
    assert verdict(speedups()["activation_full"].expect(context, installed), traced(model)).verdict is Verdict.ENGAGED
    installed.uninstall()
    assert are_checkpointed(model)


def test_without_it_every_layer_runs_once_and_what_it_was_comes_back() -> None:
    model = model_of("llama", False)
    context, installed = put_in("activation_full", model)
    expected = speedups()["activation_full"].expect(context, installed)
    assert installed.without is not None
    with installed.without():
        assert verdict(expected, traced(model)).verdict is Verdict.NOT_ENGAGED
    assert verdict(expected, traced(model)).verdict is Verdict.ENGAGED
    installed.uninstall()


@pytest.mark.parametrize(
    ("keys", "policy"),
    [
        ({}, None),
        ({"gradient_checkpointing": True}, "full"),
        ({"gradient_checkpointing": False}, "none"),
        ({"activation_memory": "selective"}, "selective"),
        ({"activation_memory": "none"}, "none"),
        ({"speedups": {"activation_full": "on"}, "gradient_checkpointing": False}, "full"),
        ({"activation_memory": "offload", "gradient_checkpointing": False}, "offload"),
    ],
)
def test_keys_ask_for_one_policy_and_leave_the_others_out(keys: dict[str, Any], policy: str | None) -> None:
    context = context_of(model_of("llama", False), **keys)
    asked = asked_policy(context.config)
    assert (asked and asked[0]) == policy
    if policy == "offload":  # asked for where it cannot be: said, and no other takes its place
        with pytest.raises(ConfigError, match="host's memory already"):
            decide(context.config, context, speedups())
        return
    for one in decide(context.config, context, speedups()):
        if one.name.startswith("activation_") and one.name.removeprefix("activation_") in POLICIES:
            assert (one.no is None) == (one.name == f"activation_{policy}"), one


def test_contradictions_name_both_keys() -> None:
    for keys in ({"activation_memory": "none", "gradient_checkpointing": True},
                 {"activation_memory": "full", "gradient_checkpointing": False}):  # fmt: skip
        with pytest.raises(ConfigError, match=r"activation_memory.*gradient_checkpointing"):
            SFTConfig(**keys)  # type: ignore[arg-type]


def test_a_budget_that_would_save_nothing_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="peak of memory goes up again"):
        SFTConfig(activation_memory_budget=0.1)
    assert SFTConfig(activation_memory_budget=0.15).activation_memory_budget == 0.15


def test_auto_is_a_number_of_tokens_that_is_chosen() -> None:
    assert SFTConfig(micro_batch_tokens="auto").micro_batch_tokens is None
    with pytest.raises(ConfigError, match="micro_batch_tokens"):
        SFTConfig.model_validate({"max_tokens_per_microbatch": "auto"})


def test_the_budget_reaches_the_partitioner_and_goes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._functorch.config as functorch
    from torch._functorch import partitioners

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    before, own = functorch.activation_memory_budget, partitioners.choose_saved_values_set
    context, installed = put_in("activation_budget", model_of("llama", False), activation_memory_budget=0.5)
    (expected,) = speedups()["activation_budget"].expect(context, installed)
    backward = Seen("CompiledFunctionBackward", Source.OPERATOR, Phase.BACKWARD, micro_batch=0)
    compiled_step, plain = (Evidence(2, "cpu", False, seen, 1) for seen in ((backward,), ()))
    assert expected.test(compiled_step) is None  # type: ignore[union-attr]

    def compiled() -> None:
        torch.compiler.reset()
        x = torch.randn(8, 8, requires_grad=True)
        torch.compile(lambda x: (x @ x).sin().exp().sum(), backend="aot_eager_decomp_partition")(x).backward()

    compiled()
    assert installed.detail.read
    assert set(installed.detail.read) == {0.5}
    assert expected.test(compiled_step) is True  # type: ignore[union-attr]
    assert expected.test(plain) is False, "no compiled code ran in that step"  # type: ignore[union-attr]
    functorch.activation_memory_budget = 1.0  # a planted lie: somebody sets it back
    compiled()
    assert expected.test(compiled_step) is False  # type: ignore[union-attr]
    installed.uninstall()
    installed.uninstall()
    assert (functorch.activation_memory_budget, partitioners.choose_saved_values_set) == (before, own)


def test_what_comes_from_the_cache_was_partitioned_under_the_share_that_was_noted_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run with a warm cache compiles nothing, so its partitioner is asked for nothing."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    warm = Budget(0.5)
    assert warm.is_read() is None, "nobody has seen it"
    assert Budget(0.5, read=[1.0]).is_read() is False
    assert warm.is_read() is None, "what was seen was another share"
    assert Budget(0.5, read=[0.5, 0.5]).is_read() is True
    assert warm.is_read() is True
    assert Budget(0.25).is_read() is None
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    assert warm.is_read() is None, "another compiler reads nothing of that cache"
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    assert Budget(0.5).is_read() is None
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "not there"))
    assert Budget(0.5, read=[0.5]).is_read() is True


def test_a_budget_without_compiled_layers_is_refused() -> None:
    context = context_of(model_of("llama", False), activation_memory_budget=0.5)
    with pytest.raises(ConfigError, match=r"activation_memory_budget.*compiled_layers"):
        decide(context.config, context, speedups())
