"""Promise: a policy that is not its reference before the first update stops the run, and what differs is named."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model

from dynotune.errors import TrainingError
from dynotune.reference.invariants import Culprit, StepZero, Suspects, explain, stop_on_breach, why_not_checked
from dynotune.reference.noise import EXACT, measured_noise
from dynotune.reference.pairs import pair_digests
from tests.reference.pairs import KEY, Reference, many
from tests.tiny import tiny_model

PAIRS = many(12)
DIGESTS = pair_digests(PAIRS)
RIGHT = Reference(PAIRS, columns=4).right(range(12))
WRONG = RIGHT * 1.01


def suspects(**changes: Any) -> Suspects:
    """Nothing suspicious."""
    return replace(Suspects(DIGESTS, DIGESTS, KEY, KEY, RIGHT, RIGHT), **changes)


def test_equal_values_pass_and_the_figure_is_said() -> None:
    step = StepZero(RIGHT * (1 + 3e-7), RIGHT, EXACT)
    stop_on_breach(step, suspects())
    assert str(step) == "step 0: log-ratios of 12 pairs are within 3e-07 of their log-probability (allowed: 1e-06)"


@pytest.mark.parametrize(
    ("policy", "changes", "culprit", "said"),
    [
        (WRONG, {"fed_P": DIGESTS[::-1]}, Culprit.ORDER, "in another order"),
        (RIGHT[:, [1, 0, 3, 2]], {}, Culprit.ORDER, "chosen and rejected are exchanged"),
        (np.roll(RIGHT, 1, 0), {}, Culprit.ORDER, "of another pair"),
        (WRONG, {"fed_P": pair_digests(many(12, seed=1))}, Culprit.TOKENS, "12 pairs were fed other tokens or masks"),
        (WRONG, {"key_now": replace(KEY, weights="w1")}, Culprit.WEIGHTS, "the weights changed since"),
        (WRONG, {"key_now": replace(KEY, config="c1")}, Culprit.WEIGHTS, "the model's configuration changed"),
        (WRONG, {"key_now": replace(KEY, precision="bf16")}, Culprit.PRECISION, "the precision changed"),
        (WRONG, {"reference_again_PC": WRONG, "policy_again_PC": WRONG}, Culprit.PRECISION, "computed again differs"),
        (WRONG, {"policy_again_PC": WRONG}, Culprit.WEIGHTS, "the adapter does not begin at zero"),
        (WRONG, {}, Culprit.PRECISION, "in training it does not"),
    ],
)
def test_a_breach_stops_the_run_and_names_what_differs(
    policy: np.ndarray, changes: dict[str, Any], culprit: Culprit, said: str
) -> None:
    step = StepZero(policy, RIGHT, EXACT)
    found, why = explain(step, suspects(**changes))
    assert found is culprit
    assert said in why
    with pytest.raises(TrainingError) as caught:
        stop_on_breach(step, suspects(**changes))
    text = str(caught.value)
    assert f"What differs: {culprit}. " in text
    assert text.count("(") == text.count(")")
    assert "of 12 pairs are off" in text


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_pair_that_is_not_a_number_is_a_breach(bad: float) -> None:
    policy = RIGHT.copy()
    policy[3, 1] = bad
    assert StepZero(policy, RIGHT, 1.0).breaches.tolist() == [3]


def test_the_bound_is_relative_to_each_log_probability() -> None:
    kept = np.array([[-1000.0, -10.0]])
    assert not len(StepZero(kept + np.array([[9e-4, 9e-6]]), kept, EXACT).breaches)
    assert len(StepZero(kept + np.array([[0, 2e-5]]), kept, EXACT).breaches)


def test_no_pairs() -> None:
    step = StepZero(np.zeros((0, 2)), np.zeros((0, 2)), EXACT)
    stop_on_breach(step, suspects(fed_P=DIGESTS[:0], kept_P=DIGESTS[:0]))
    assert "0 pairs" in str(step)


@given(st.integers(2, 9), st.randoms(use_true_random=False), st.floats(0, 9e-7))
@settings(max_examples=50, deadline=None)
def test_any_permutation_is_named_as_order(count: int, random: Any, noise: float) -> None:
    kept = Reference(many(count), columns=2).right(range(count))
    order = list(range(count))
    random.shuffle(order)
    step = StepZero(kept[order] * (1 + noise), kept, EXACT)
    digests = pair_digests(many(count))
    if len(step.breaches):
        found, _ = explain(step, suspects(fed_P=digests, kept_P=digests))
        assert found is Culprit.ORDER


def test_why_it_is_not_checked() -> None:
    def why(model: Any, **said: bool) -> str | None:
        return why_not_checked(model, **{"other_reference": False, "reference_free": False, "resumed": False, **said})

    model: Any = tiny_model()
    assert why(model) is None
    assert why(model, reference_free=True) == "the loss has no reference"
    assert why(model, resumed=True) == "the run goes on from a later step"
    assert why(model, other_reference=True) == "the reference is another model than the policy"
    model.config.attention_dropout = 0.25  # what a module was made from decides nothing any more
    assert why(model) is None
    model.model.layers[1].self_attn.attention_dropout = 0.25
    assert why(model) == "dropout is on in training and off in the reference (attention_dropout: 0.25)"
    model.model.layers[1].self_attn.attention_dropout = 0.0
    model.model.layers[0].mlp.jitter_noise = 0.01
    assert why(model) == "dropout is on in training and off in the reference (jitter_noise: 0.01)"
    model.model.layers[0].mlp.jitter_noise = 0.0
    model.model.layers[0].mlp.drop = torch.nn.Dropout(0.1)
    model.model.layers[1].mlp.drop = torch.nn.Dropout(0.0)
    assert why(model) == "dropout is on in training and off in the reference (drop: 0.1)"


def test_loras_dropout_counts_only_where_the_adapter_does_not_begin_at_zero() -> None:
    model = get_peft_model(tiny_model(), LoraConfig(r=4, target_modules=["q_proj"], lora_dropout=0.05))
    said = {"other_reference": False, "reference_free": False, "resumed": False}
    assert why_not_checked(model, **said) is None
    why = why_not_checked(model, **said, adapter_begins_at_zero=False)
    assert why == "dropout is on in training and off in the reference (lora_dropout: 0.05)"


def test_noise_is_what_company_in_a_micro_batch_changes() -> None:
    reference = Reference(PAIRS)

    def in_low_precision(numbers: Any) -> Any:
        return reference.right(numbers) * (1 + (2e-3 if len(numbers) == 1 else 0))

    numbers = np.arange(6)
    assert measured_noise(reference.right, numbers) == EXACT
    assert measured_noise(in_low_precision, numbers) == pytest.approx(8e-3)
    assert measured_noise(lambda n: reference.right(n) * np.nan, numbers) == np.inf
    assert measured_noise(reference.right, numbers[:0]) == EXACT
