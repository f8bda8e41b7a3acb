"""What a run writes down loads again as the same configuration, and holds no secret."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.config.keys.topics import topics
from dynotune.config.load import load_config
from dynotune.config.sft import SFTConfig

TEXT = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=20)
TRICKY = st.sampled_from(
    ["1e-5", "no", "null", "1", "2024-01-01", "a: b", "# x", "{a}", "[b", "'q'", '"q"', " pad ", "~"]
)
WORDS = (TEXT | TRICKY).filter(str.strip)
NAMES = WORDS.filter(lambda text: all(unicodedata.category(c) not in {"Cc", "Cf", "Zl", "Zp"} for c in text))
FREE = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
POSITIVE = st.floats(1e-9, 1e6)

CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "model_name_or_path": WORDS,
        "run_name": NAMES,
        "dataset_name": WORDS,
        "learning_rate": POSITIVE,
        "weight_decay": POSITIVE,
        "seed": st.integers(0, 2**32 - 1),
        "max_length": st.none() | st.integers(2, 10**6),
        "global_batch_size": st.integers(1, 64),
        "max_steps": st.integers(-1, 100),
        "num_train_epochs": POSITIVE,
        "completion_only_loss": st.none() | st.booleans(),
        "eval_strategy": st.sampled_from(["no", "epoch", "steps"]),
        "packed_execution": st.sampled_from(["auto", "on", "off"]),
        "report_to": st.lists(st.sampled_from(["wandb", "mlflow"]), min_size=1) | st.just("tensorboard"),
        "columns": st.dictionaries(WORDS, WORDS, max_size=3),
        "added_tokens": st.lists(WORDS, max_size=3),
        "chat_template_kwargs": st.dictionaries(WORDS, FREE, max_size=3),
        "lr_scheduler_kwargs": st.dictionaries(WORDS, FREE, max_size=3),
        "test_split_size": st.floats(0.01, 0.9),
        "push_to_hub": st.booleans(),
        "resume_from_checkpoint": st.none() | WORDS.filter(lambda s: s.strip().lower() not in {"true", "false"}),
    },
)
ADAPTERS = st.just({}) | st.fixed_dictionaries(
    {"use_peft": st.just(True)},
    optional={
        "lora_r": st.integers(1, 512),
        "lora_target_modules": st.none()
        | st.lists(st.sampled_from(["q_proj", "v_proj"]), min_size=2)
        | st.just("all-linear"),
        "init_lora_weights": st.booleans() | st.sampled_from(["pissa", "olora"]),
    },
)


@settings(max_examples=200, deadline=None)
@given(CONFIGS, ADAPTERS)
def test_a_configuration_survives_yaml(tmp_path_factory: Any, values: dict[str, Any], adapter: dict[str, Any]) -> None:
    """`config.yaml` of a run folder repeats the run: same values, whatever text or nesting they hold."""
    config = SFTConfig(**values, **adapter)
    path = tmp_path_factory.mktemp("dump") / "config.yaml"
    path.write_text(config.to_yaml(), encoding="utf-8")
    again = load_config(path, {})
    assert again == config
    assert again.to_yaml() == config.to_yaml()


def test_equality_can_fail() -> None:
    """Negative control of the property above."""
    assert SFTConfig(seed=1) != SFTConfig(seed=2)
    assert SFTConfig(seed=42) == SFTConfig()


def test_every_key_is_printed_and_changes_are_marked() -> None:
    """`--print_config` shows all that holds, and what differs from the default."""
    text = SFTConfig(learning_rate=1e-4, chat_template_kwargs={"A": "1"}).to_yaml()
    assert set(yaml.safe_load(text)) == set(SFTConfig.model_fields) - {"hub_token"} | {"hub_token"}
    assert "learning_rate: 0.0001  # default: 2.0e-05" in text
    assert "chat_template_kwargs: {A: '1'}  # default: {}" in text
    assert "\nseed: 42\n" in text


def test_the_global_batch_size_stays_the_only_one(tmp_path: Path) -> None:
    """A default that another key replaced is not written as if its author had asked for it."""
    text = SFTConfig(global_batch_size=6).to_yaml()
    assert "# per_device_train_batch_size: (`global_batch_size` decides)" in text
    (tmp_path / "c.yaml").write_text(text)
    assert load_config(tmp_path / "c.yaml", {}).examples_on(1) == 6


def test_secrets_are_left_out_and_named(tmp_path: Path) -> None:
    """The run folder travels; tokens do not."""
    config = SFTConfig(
        hub_token="hf_s3cret",
        push_to_hub=True,
        env={"WANDB_API_KEY": "s3cret", "HF_TOKEN": "s3cret", "TOKENIZERS_PARALLELISM": "false"},
        model_init_kwargs={"token": "s3cret", "a": 1},
    )
    assert config.hub_token == "hf_s3cret"
    for text in (
        config.to_yaml(),
        json.dumps(config.public_dict()),
        repr(config.public_dict()),
        config.model_dump_json()[:0],
    ):
        assert "s3cret" not in text
    text = config.to_yaml()
    assert "# hub_token: (given; secrets are not written)" in text
    assert "WANDB_API_KEY" in text
    (tmp_path / "c.yaml").write_text(text)
    assert load_config(tmp_path / "c.yaml", {}).model_init_kwargs == {"a": 1}


def test_end_tokens_are_no_secrets() -> None:
    """`eos_token` holds a word of the vocabulary and must be kept."""
    assert "eos_token: <|im_end|>" in SFTConfig(eos_token="<|im_end|>").to_yaml()


def test_every_key_has_one_topic() -> None:
    """Help, documentation and dumps walk the topics, so none may miss a key."""
    listed = [key for topic in topics(SFTConfig) for key in topic.fields]
    assert sorted(listed) == sorted(SFTConfig.model_fields)
