"""Promise: a run is packed where its model can be packed, else plain and it says why; learned is the same either way."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from rich.console import Console

from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError
from dynotune.execution.packed import PackedPath
from dynotune.model.attention.call import NAME
from dynotune.speedups.registry import speedups
from dynotune.speedups.remembered import Remembered
from dynotune.train.start import execution as choose
from tests.model.attention.architectures import ARCHITECTURES, architecture
from tests.speedups.toys import NOWHERE, Toy
from tests.speedups.upgraded import upgraded
from tests.tiny import chats, tiny_model

FEW = ("llama", "gemma3_text", "qwen3_moe")
LORA = {"use_peft": True, "lora_target_modules": "all-linear", "lora_r": 4, "lora_dropout": 0.0}
CANNOT = {
    "mamba": "carry one document into the next",
    "bloom": "does not go through",
    "stablelm": "hand the boundaries",
}


@pytest.fixture
def said(tmp_path: Path) -> Any:
    """A console, and what it printed as one text."""
    console = Console(record=True, width=400, file=(tmp_path / "out").open("w"))
    return console, lambda: console.export_text(clear=False)


def trained(result: Any) -> torch.Tensor:
    """All trained parameters, flat."""
    return torch.cat([p.detach().flatten().double() for p in result.model.parameters() if p.requires_grad])


def run(run_tiny: Any, execution: str, kind: str, **settings: Any) -> Any:
    return run_tiny(
        **{
            "model": architecture(kind), "rows": chats(24), "packed_execution": execution, "max_steps": 3,
            "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "overwrite_output_dir": True,
            "optim": "sgd", "lr_scheduler_type": "constant", "learning_rate": 0.1, "max_grad_norm": 1.0, **settings,
        }
    )  # fmt: skip


@pytest.mark.parametrize("adapter", [{}, LORA], ids=["full", "lora"])
@pytest.mark.parametrize("kind", [k if k in FEW else pytest.param(k, marks=pytest.mark.long) for k in ARCHITECTURES])
def test_whole_runs_learn_the_same(kind: str, adapter: dict[str, Any], run_tiny: Any) -> None:
    """Several micro-batches a step, through the plan, the feed, the loop and the optimizer."""
    packed = run(run_tiny, "on", kind, micro_batch_tokens=128, **adapter)
    plain = run(run_tiny, "off", kind, **adapter)
    for a, b in zip(packed.metrics, plain.metrics, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)
        assert a["grad_norm"] == pytest.approx(b["grad_norm"], rel=1e-4)
        assert a["num_tokens"] == b["num_tokens"]
    ours, theirs = trained(packed), trained(plain)
    assert (ours - theirs).norm() <= 1e-4 * theirs.norm()


def test_the_comparison_sees_a_step_that_loses_a_document(run_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control of the test above."""
    plain = run(run_tiny, "off", "llama")
    right = PackedPath.host_batch
    monkeypatch.setattr(
        PackedPath, "host_batch", lambda self, documents, tokens, pin: right(self, documents[1:], tokens, pin)
    )
    packed = run(run_tiny, "on", "llama", micro_batch_tokens=128)
    assert packed.metrics[0]["loss"] != pytest.approx(plain.metrics[0]["loss"], rel=1e-5)


def put_in(model: Any) -> list[Any]:
    """What stands on modules beside their class: forwards and attention that were put in."""
    return [(type(m), m.__dict__.get("forward"), m.config._attn_implementation) if hasattr(m, "config") else
            (type(m), m.__dict__.get("forward")) for m in model.modules()]  # fmt: skip


@pytest.mark.parametrize("adapter", [False, True], ids=["full", "lora"])
def test_a_model_that_can_be_packed_is_packed_and_given_back(adapter: bool, run_tiny: Any, said: Any) -> None:
    console, text = said
    model: Any = tiny_model()
    if adapter:
        model = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
    before, inside = put_in(model), []
    first = model.get_decoder().layers[0]
    first.register_forward_hook(lambda *_: inside.append((first.self_attn.config._attn_implementation, put_in(model))))
    run_tiny(model=model, console=console)
    assert "execution: packed, isolated documents: " in text()
    assert NAME in [name for name, _ in inside]
    assert any(found != before for _, found in inside)
    assert put_in(model) == before


@pytest.mark.parametrize("kind", CANNOT)
def test_a_model_that_cannot_be_packed_takes_the_plain_path_and_says_why(kind: str, run_tiny: Any, said: Any) -> None:
    console, text = said
    result = run_tiny(model=tiny_model(kind), console=console, max_steps=2)
    line = next(line for line in text().splitlines() if "execution: " in line)
    assert line.startswith("note: execution: plain, one document at a time: ")
    assert "cannot be packed" in line
    assert CANNOT[kind] in line
    assert [row["step"] for row in result.metrics] == [1, 2]


@pytest.mark.parametrize("kind", CANNOT)
def test_packed_execution_that_is_demanded_and_cannot_be_is_refused(kind: str, run_tiny: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"`packed_execution: on`.*cannot be packed: .*Write `auto`"):
        run_tiny(model=tiny_model(kind), packed_execution="on")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_head_that_is_not_understood_means_the_plain_path_too(run_tiny: Any, said: Any) -> None:
    console, text = said
    model: Any = tiny_model()
    model.register_forward_hook(lambda module, args, out: setattr(out, "logits", out.logits + out.logits.square()))
    run_tiny(model=model, console=console, max_steps=1)
    assert "note: execution: plain, one document at a time: LlamaForCausalLM cannot be packed: " in text()


def test_off_is_plain_and_says_so(run_tiny: Any, said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    console, text = said
    monkeypatch.setattr(PackedPath, "__init__", None)  # is not even tried
    run_tiny(console=console, packed_execution="off", max_steps=1)
    assert "execution: plain, one document at a time, as `packed_execution: off` asks" in text()


def test_a_routers_auxiliary_loss_is_left_out_on_either_path_and_said(run_tiny: Any, said: Any) -> None:
    console, text = said
    first = []
    for execution in ("on", "off"):
        model = architecture("qwen3_moe", router_aux_loss_coef=0.5, output_router_logits=True)
        first.append(
            run(run_tiny, execution, "qwen3_moe", model=model, console=console, max_steps=1).metrics[0]["loss"]
        )
    assert first[0] == pytest.approx(first[1], rel=1e-5)
    assert text().count("behavioural: the router's auxiliary loss of this mixture of experts (coefficient 0.5)") == 2


def test_a_kernel_that_is_asked_for_and_cannot_be_stops_the_run(run_tiny: Any) -> None:
    with pytest.raises(ConfigError, match=r"`attn_implementation: flash_attention_2`.*attention_varlen .*for the CPU"):
        run_tiny(attn_implementation="flash_attention_2", packed_execution="auto")


def test_what_another_rank_cannot_do_gives_its_place_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here `first` would run and `second` stands back; on the other rank `first` cannot be."""

    class TwoRanks:
        def gather(self, mine: Any) -> list[Any]:
            return [mine, {"first": ("flash-attn 3 is not installed", "", False)}]

    toys = {"first": Toy("first", slot="attention"), "second": Toy("second", slot="attention", rank=1)}
    monkeypatch.setattr(choose, "speedups", lambda: toys)
    ranks: Any = TwoRanks()
    first, second = choose._decisions(SFTConfig(), NOWHERE, Remembered.nothing(), ranks)
    assert first.no is not None
    assert first.no.reason == "flash-attn 3 is not installed (rank 1)"
    assert second.no is None


def test_what_failed_to_install_is_not_tried_at_the_next_start(
    run_tiny: Any, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    console, text = said
    tries: list[str] = []
    error: Exception = RuntimeError("undefined symbol: _ZN3c10")

    def fails(site: Any) -> Any:
        tries.append(site.context.work)
        raise error

    def start(**settings: Any) -> None:
        run(run_tiny, "auto", "llama", max_steps=1, console=console, **settings)

    monkeypatch.setattr(speedups()["labelled_rows_head"], "install", fails)
    start()
    assert len(tries) == 1
    assert "it failed to install (RuntimeError: undefined symbol: _ZN3c10), and is left out of later runs" in text()
    start()
    assert len(tries) == 1
    assert "note: labelled_rows_head does not run: it failed on this machine in sft of LlamaForCausalLM on " in text()
    assert "To have it, run `dynotune engaged --forget labelled_rows_head`" in text()
    with upgraded("transformers"):
        start()
    assert len(tries) == 2
    start(**LORA)  # work of another kind
    assert len(tries) == 3
    Remembered.here("cpu").forget("labelled_rows_head")
    error = RuntimeError("cuBLAS error: CUBLAS_STATUS_ALLOC_FAILED")
    start()
    start()
    assert len(tries) == 5
