"""Promise: a DPO configuration has TRL's names and defaults, and says what contradicts itself and what does nothing."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

import dynotune
from dynotune import ConfigError, DPOConfig, load_config
from dynotune.config.checking import preference as tables
from dynotune.config.keys.preference import PREFERENCE_LOSSES
from dynotune.config.keys.topics import topics
from dynotune.handbook.schema import json_schema
from dynotune.objectives.preference.losses import LOSSES
from dynotune.objectives.preference.objective import PreferenceObjective
from dynotune.objectives.preference.pairs import Answers, Need, Pairs

TRL_FILE = """
model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct
dataset_name: trl-lib/ultrafeedback_binarized
learning_rate: 5.0e-7
per_device_train_batch_size: 2
gradient_accumulation_steps: 8
loss_type: sigmoid
beta: 0.05
max_length: 2048
precompute_ref_log_probs: true
gradient_checkpointing: true
logging_steps: 25
eval_strategy: steps
eval_steps: 50
output_dir: Qwen2.5-DPO
use_peft: true
lora_r: 32
lora_alpha: 16
"""


def test_a_trl_file_runs_as_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "dpo.yaml"
    file.write_text(TRL_FILE)
    config = load_config(file, into=DPOConfig)
    assert isinstance(config, DPOConfig)
    assert (config.loss_type, config.beta, config.learning_rate) == (["sigmoid"], 0.05, 5e-7)
    assert config.notices == []


def test_defaults_are_dpos() -> None:
    assert dynotune.DPOConfig is DPOConfig
    assert DPOConfig().learning_rate == 1e-6
    assert dynotune.SFTConfig().learning_rate == 2e-5


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        ({"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0]}, ("loss_weights", "loss_type")),
        ({"loss_type": "exo_pair"}, ("loss_type", "label_smoothing")),
        ({"loss_type": "robust", "label_smoothing": 0.5}, ("label_smoothing", "loss_type")),
        ({"loss_type": "apo_zero", "f_divergence_type": "forward_kl"}, ("f_divergence_type", "loss_type")),
        ({"loss_type": ["sigmoid", "aot"], "use_weighting": True}, ("use_weighting", "loss_type")),
        ({"loss_type": ["sigmoid", "sft"], "use_weighting": True}, ("use_weighting", "loss_type")),
        ({"loss_type": "simpo", "ld_alpha": 0.5}, ("ld_alpha", "loss_type")),
    ],
)
def test_a_contradiction_names_both_keys(settings: dict[str, Any], keys: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        DPOConfig(**settings)
    assert all(f"`{key}" in str(caught.value) for key in keys)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"label_smoothing": 0.1}, "label_smoothing"),
        ({"discopop_tau": 0.1}, "discopop_tau"),
        ({"simpo_gamma": 1.0}, "simpo_gamma"),
        ({"cpo_alpha": 0.5}, "cpo_alpha"),
        ({"f_alpha_divergence_coef": 0.2}, "f_alpha_divergence_coef"),
        ({"loss_type": "aot", "per_device_train_batch_size": 1}, "per_device_train_batch_size: 1"),
    ],
)
def test_what_does_nothing_is_said(settings: dict[str, Any], word: str) -> None:
    (notice,) = DPOConfig(**settings).notices
    assert word in notice


def test_what_agrees_is_silent() -> None:
    """Negative control of both tests above."""
    for settings in (
        {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.2], "ld_alpha": 0.5},
        {"loss_type": "robust", "label_smoothing": 0.1, "use_weighting": True},
        {"loss_type": "ipo", "f_divergence_type": "alpha_divergence", "f_alpha_divergence_coef": 0.2},
        {"loss_type": "simpo", "simpo_gamma": 1.0, "beta": 2.0},
        {"loss_type": "aot", "label_smoothing": 0.1},
    ):
        assert DPOConfig(**settings).notices == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"loss_type": "aot_pair"}, "`aot` now"),
        ({"loss_type": ["nll"]}, "`sft`"),
        ({"loss_type": "simgoid"}, "Did you mean `sigmoid`"),
        ({"beta": 0}, "above 0"),
        ({"ld_alpha": 1.5}, "1 or less"),
        ({"pref_beta": 0.1}, "Write `beta`"),
        ({"rpo_alpha": 0.2}, "sigmoid, sft"),
        ({"packing": False}, "a pair stays a pair"),
        ({"assistant_only_loss": True}, "supervised fine-tuning"),
        ({"pakcing": True}, "dynotune dpo --help"),
        ({"sync_ref_model": True}, "computed once"),
    ],
)
def test_an_error_says_what_to_write(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        DPOConfig(**given)


def test_keys_of_sft_are_nowhere() -> None:
    config = DPOConfig()
    absent = DPOConfig.method.without
    assert {"packing", "completion_only_loss", "dataset_text_field"} <= absent
    assert not absent & {key for topic in topics(DPOConfig) for key in topic.fields}
    assert not absent & set(config.public_dict())
    assert not absent & set(yaml.safe_load(config.to_yaml()))
    properties = json_schema(DPOConfig)["properties"]
    assert all(properties[key].get("deprecated") for key in absent)
    with pytest.raises(ConfigError, match="packing"):
        config.packing = True


def test_what_is_dumped_loads_again(tmp_path: Path) -> None:
    config = DPOConfig(loss_type=["sigmoid", "sft"], loss_weights=[1.0, 0.5], beta=0.3, ld_alpha=0.5)
    file = tmp_path / "again.yaml"
    file.write_text(config.to_yaml())
    assert load_config(file, into=DPOConfig) == config
    assert config.replace(beta=0.2).loss_weights == [1.0, 0.5]


def test_the_schema_takes_one_loss_or_a_list() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(json_schema(DPOConfig))
    for good in ({"loss_type": "sigmoid"}, {"loss_type": ["sigmoid", "sft"]}, {"beta": 0.1}):
        assert validator.is_valid(good)
    for bad in ({"loss_type": "nll"}, {"loss_type": ["simgoid"]}, {"beta": 0}, {"pref_beta": 1}):
        assert not validator.is_valid(bad)


def test_the_tables_of_checks_are_those_of_the_losses() -> None:
    """The checks import no losses, which need PyTorch."""
    assert {name for name, loss in LOSSES.items() if Need.WHOLE_GROUPS in loss.needs} == tables.SORTING
    assert {name for name, loss in LOSSES.items() if Need.TOKEN_SHARES in loss.needs} == tables.WITH_LIKELIHOOD
    free = {name for name, loss in LOSSES.items() if Need.REFERENCE not in loss.needs}
    assert free == tables.WITHOUT_REFERENCE | {"sft"}
    assert set(PREFERENCE_LOSSES) >= tables.OF_THE_MARGIN | tables.SMOOTHING


@given(
    losses=st.lists(st.sampled_from(PREFERENCE_LOSSES), min_size=1, max_size=3),
    weights=st.none() | st.lists(st.floats(-2, 2), min_size=1, max_size=3),
    smoothing=st.sampled_from([0.0, 0.001, 0.3, 0.5, 0.9]),
    divergence=st.sampled_from(["reverse_kl", "forward_kl", "js_divergence", "alpha_divergence"]),
    alpha=st.floats(-2, 2),
    ld_alpha=st.none() | st.floats(0, 1),
    weighting=st.booleans(),
)
def test_what_is_accepted_can_be_computed(
    losses: list[str],
    weights: list[float] | None,
    smoothing: float,
    divergence: str,
    alpha: float,
    ld_alpha: float | None,
    weighting: bool,
) -> None:
    """Either the configuration is refused, or every loss of it has finite values and gradients."""
    try:
        config = DPOConfig(
            loss_type=losses,
            loss_weights=weights,
            label_smoothing=smoothing,
            f_divergence_type=divergence,
            f_alpha_divergence_coef=alpha,
            ld_alpha=ld_alpha,
            use_weighting=weighting,
        )
    except ConfigError:
        return
    sides = []
    for logps, reference, lengths in (([-9.0, -40.0], [-11.0, -30.0], [4, 9]), ([-8.0, -2.0], [-7.0, -5.0], [6, 1])):
        logps_P = torch.tensor(logps, requires_grad=True)
        tails_P, half = logps_P * 0.5, torch.tensor(reference) * 0.5
        sides.append(
            Answers(
                logps_P,
                torch.tensor(lengths),
                torch.tensor(reference),
                tails_P=tails_P,
                reference_tails_P=half,
                agreement_P=half,
            )
        )
    pairs = Pairs(*sides, groups=(2,), token_shares_P=torch.tensor([0.15, 0.15]))
    loss = PreferenceObjective(config, predictions=False).losses(pairs).sum()
    gradients = torch.autograd.grad(loss, [side.logps_P for side in sides], allow_unused=True)
    assert loss.isfinite()
    assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)
