"""Promise: none of the faults found in other trainers' figures is in ours. Whose it was stands with each.

The shapes are those of real models on PyTorch's meta device, which has no numbers; the expected values are worked out by
hand, or those that others published with the faults taken out. Those that need a run stand in tests/train/test_figures.py.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from dynotune.measure import clock as clock_module
from dynotune.measure.clock import WindowClock
from dynotune.measure.flops import Flops
from dynotune.measure.peaks import KNOWN, Peak, peak_by_name
from dynotune.measure.products import CannotCountError
from dynotune.measure.totals import Totals
from dynotune.measure.utilisation import Utilisation
from dynotune.measure.words import Counts, utilisation
from dynotune.train.state import Progress
from tests.measure.steps import step_of
from tests.tiny import tiny_model

SHAPES: dict[str, dict[str, Any]] = {
    "Llama-3.1-8B": {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    },
    "Qwen2.5-7B": {
        "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    },
    "Qwen3-4B": {
        "model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
}  # fmt: skip
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@cache
def flops_of(name: str, lora_r: int = 0) -> Flops:
    shape = dict(SHAPES[name])
    config = AutoConfig.for_model(shape.pop("model_type"), **shape)
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        if lora_r:
            model = get_peft_model(model, LoraConfig(r=lora_r, target_modules=LINEARS))
    return Flops.of(model)


def per_token(flops: Flops, length: int) -> float:
    """Model FLOPs a token of full rows of this length, all of it labelled."""
    return flops.of_step(step_of([length]), labelled_rows_head=False).model_flops / length


def attention_of(flops: Flops, lengths: list[int]) -> int:
    return sum(kind.model * kind.reach.twice_pairs(np.array(lengths)) for kind in flops.attention)


@pytest.mark.parametrize(
    ("name", "lora_r", "length", "tokens_per_second", "tflops"),
    [
        ("Llama-3.1-8B", 0, 4096, 10_471, 505),  # KempnerForge, full, one H200: 57.8 % by its own count, 51.1 % so
        ("Llama-3.1-8B", 0, 8192, 6_667, 343),  # torchtitan, compiled, on 8 H100: 39 % by its own count, 34.7 % so
        ("Llama-3.1-8B", 16, 4096, 12_473, 418),  # NeMo Automodel, LoRA, one H100
        ("Qwen2.5-7B", 16, 4096, 14_110, 437),
    ],
)
def test_published_rates_come_out_as_worked_out_by_hand(
    name: str, lora_r: int, length: int, tokens_per_second: int, tflops: float
) -> None:
    assert per_token(flops_of(name, lora_r), length) * tokens_per_second / 1e12 == pytest.approx(tflops, rel=0.005)


def test_peak_fall_back() -> None:
    """OLMo-core takes an unknown GPU for an A100: an H200 reads 3.17 times too good, a B300 105.7 % instead of 14.7 %."""
    for name in ("NVIDIA B300 SXM6 AC", "NVIDIA H200 SXM", "NVIDIA Something"):
        assert isinstance(peak_by_name(name, 132), str)
    model: Any = tiny_model()
    unknown = Utilisation.of(model, torch.device("cpu"))
    assert unknown.why_not is not None
    totals = Totals()
    totals.add_step(Counts.of(step_of([10])), unknown.of_step(step_of([10])))
    totals.add_time(1.0, unknown.available_flops(1.0))
    assert "mfu" not in totals.figures()
    assert "hfu" not in totals.figures()
    assert totals.figures()["tokens_per_second"] == 10.0  # what needs no peak is there


def test_sparse_peak() -> None:
    """fms-fsdp 89, Megatron-LM 1565: 1,979 TFLOP/s is what an H100 does with half of the numbers zero."""
    for name in ("NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA GH200 480GB"):
        assert KNOWN[name].tflops == 1979 / 2
    assert KNOWN["NVIDIA A100-SXM4-80GB"].tflops == 624 / 2


def test_lm_head_forgotten_or_embedding_added() -> None:
    """open-instruct left the head out (7 % of an 8B model), verl and picotron count the embedding besides."""
    head = 4096 * 128256
    layers = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336)
    flops = flops_of("Llama-3.1-8B")
    assert (flops.per_token, flops.per_logit_row) == (6 * layers, 6 * head)
    assert layers + head == 7_504_658_432  # with the embedding it would be 8.03 thousand million
    tied = flops_of("Qwen3-4B")
    assert tied.per_logit_row == 6 * 2560 * 151936  # one parameter, a look-up at the one end and a product at the other


def test_logits_that_are_not_computed_do_not_count() -> None:
    flops = flops_of("Qwen2.5-7B")
    step = step_of([1000], labels=300)
    every, labelled = (flops.of_step(step, labelled_rows_head=rows).model_flops for rows in (False, True))
    assert every - labelled == 700 * 6 * 3584 * 152064


def test_head_dim_is_not_hidden_over_heads() -> None:
    """prime-rl counts 80 for Qwen3-4B's 128, so 62.5 % of its attention."""
    assert attention_of(flops_of("Qwen3-4B"), [4096]) == 36 * 6 * (32 * 128) * 4096**2
    assert 2560 // 32 != 128


def test_grouped_key_value_heads_do_not_make_attention_cheaper() -> None:
    assert attention_of(flops_of("Llama-3.1-8B"), [4096]) == 32 * 6 * 4096 * 4096**2
    assert attention_of(flops_of("Llama-3.1-8B"), [4096]) / 4096 == pytest.approx(3.22e9, rel=1e-3)


def test_packed_rows_counted_as_one_long_sequence() -> None:
    """OLMo-core, Automodel, torchtitan: 64 documents of 128 tokens in a row of 8,192 get 64 times their attention."""
    flops = flops_of("Llama-3.1-8B")
    packed = flops.of_step(step_of([128] * 64, tokens=[8192]), labelled_rows_head=True).model_flops
    plain = flops.of_step(step_of([128] * 64), labelled_rows_head=True).model_flops
    as_one = flops.of_step(step_of([8192]), labelled_rows_head=True).model_flops
    assert packed == plain
    assert as_one - packed == 63 * attention_of(flops, [128] * 64)


def test_padding_counted_as_tokens() -> None:
    """torchtitan, OLMo-core and torchtune's DPO: at a fill of one half, tokens/s and MFU read twice too good."""
    flops = flops_of("Llama-3.1-8B")
    tight, padded = step_of([1000]), step_of([1000], tokens=[2000])
    assert Counts.of(padded).real_tokens == 1000
    of_tight, of_padded = (flops.of_step(step, labelled_rows_head=True) for step in (tight, padded))
    assert of_padded.model_flops == of_tight.model_flops
    assert of_padded.hardware_flops > 1.8 * of_tight.hardware_flops  # the device did it all the same
    every, labelled = (flops.of_step(padded, labelled_rows_head=rows).hardware_flops for rows in (False, True))
    label_tokens = padded.label_tokens
    assert every - labelled == (2000 - label_tokens) * flops.per_logit_row  # where padding has logits too
    totals = Totals()
    totals.add_step(Counts.of(padded), of_padded)
    totals.add_time(2.0, 0.0)
    figures = totals.figures()
    assert (figures["tokens_per_second"], figures["processed_tokens_per_second"], figures["fill"]) == (
        500.0,
        1000.0,
        0.5,
    )


def test_lora_as_6n() -> None:
    """An 8B LoRA at a true 42 % would read 61 %."""
    full, lora = flops_of("Llama-3.1-8B"), flops_of("Llama-3.1-8B", lora_r=16)
    adapters = 32 * 16 * (2 * 8192 + 2 * (4096 + 1024) + 3 * (4096 + 14336))
    assert lora.per_token == full.per_token // 6 * 4 + 6 * adapters
    assert lora.per_logit_row == full.per_logit_row // 6 * 4  # the head is frozen too
    assert lora.attention == full.attention


def test_recomputation_is_no_model_flop() -> None:
    """Checkpointing makes the device work more and the model learn no faster: only HFU may rise."""
    model: Any = tiny_model()
    step = step_of([20, 30])
    before = Flops.of(model).of_step(step, labelled_rows_head=True)
    model.train().gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    after = Flops.of(model).of_step(step, labelled_rows_head=True)
    assert after.model_flops == before.model_flops
    assert after.hardware_flops > before.hardware_flops


def test_rank_0_extrapolation() -> None:
    """open-instruct multiplies rank 0's tokens with the number of ranks; under packing every rank has others. Here a step is
    counted from the plan, which knows all ranks, over what all devices could have done."""
    flops = flops_of("Llama-3.1-8B")
    on_rank_0, on_rank_1 = step_of([900, 100]), step_of([2000, 1000])
    whole = step_of([900, 100, 2000, 1000])
    assert Counts.of(whole) == Counts.of(on_rank_0) + Counts.of(on_rank_1)
    two = Utilisation(flops, Peak(100.0, "made up"), devices=2)
    assert two.available_flops(3.0) == 2 * 3.0 * 100e12
    share = utilisation(two.of_step(whole).model_flops, two.available_flops(3.0))
    extrapolated = utilisation(2 * two.of_step(on_rank_0).model_flops, two.available_flops(3.0))
    assert share is not None
    assert extrapolated is not None
    assert share > 1.9 * extrapolated


def test_a_rate_by_device_is_divided_by_devices_whose_peak_is_not_known_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a peak, and without a count of FLOPs, MFU alone is missing."""

    def cannot(model: Any) -> Flops:
        raise CannotCountError("an encoder-decoder is not counted")

    monkeypatch.setattr(Flops, "of", cannot)
    model: Any = torch.nn.Linear(2, 2)
    cpu = torch.device("cpu")
    for known in (Utilisation.of(model, cpu, devices=4), Utilisation.of(model, cpu, 100.0, devices=4)):
        assert known.why_not
        assert known.devices == 4


def test_a_run_that_moved_to_another_device_is_weighed_by_both_peaks() -> None:
    progress = Progress()
    flops = flops_of("Llama-3.1-8B")
    for seconds, tflops in ((10.0, 312.0), (5.0, 989.5)):
        known = Utilisation(flops, Peak(tflops, "made up"))
        progress.totals.add_step(Counts.of(step_of([4096])), known.of_step(step_of([4096])))
        progress.totals.add_time(seconds, known.available_flops(seconds))
    work = 2 * flops.of_step(step_of([4096]), labelled_rows_head=False).model_flops
    assert progress.totals.figures()["mfu"] == pytest.approx(work / (10 * 312e12 + 5 * 989.5e12))


def test_a_host_clock_without_a_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most trainers ask the host's clock, which says when work was asked for. On a GPU the device's own events say when it
    was done, and nothing waits for them."""
    device_time = 0.0

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, stream: object) -> None:
            self.at = device_time

        def elapsed_time(self, end: "Event") -> float:
            return 1e3 * (end.at - self.at)

    class NoHostClock:
        def perf_counter(self) -> float:
            raise AssertionError("the host's clock was asked")

    def no_sync(*_: object) -> None:
        raise AssertionError("the host waited for the device")

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "synchronize", no_sync)
    monkeypatch.setattr(clock_module, "time", NoHostClock())
    clock = WindowClock(torch.device("cuda"))
    device_time = 4.0
    first = clock.window()
    device_time = 6.5
    assert (first.seconds(), clock.window().seconds()) == (4.0, 2.5)
