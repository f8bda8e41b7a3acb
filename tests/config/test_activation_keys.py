"""Promise: of keys that say what becomes of activations each is followed, named as the one that gives way, or refused."""

from itertools import product
from typing import Any

import pytest

from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError
from dynotune.speedups.activation import POLICIES, asked_policy

SETTINGS = ("auto", "on", "off")
NAMED = ("selective", "full", "offload")


def every_combination() -> list[dict[str, Any]]:
    found = []
    for policy, offloading, again, *named in product(
        ("auto", *POLICIES), (False, True), (None, True, False), SETTINGS, SETTINGS, SETTINGS
    ):
        keys: dict[str, Any] = {"activation_memory": policy, "activation_offloading": offloading}
        if again is not None:
            keys["gradient_checkpointing"] = again
        keys["speedups"] = {f"activation_{name}": setting for name, setting in zip(NAMED, named, strict=True)}
        found.append(keys)
    return found


def statements(keys: dict[str, Any]) -> dict[str, set[str]]:
    """As written, each key that says something, with the policies that it would have: as a user reads the documentation."""
    found: dict[str, set[str]] = {}
    if keys["activation_memory"] != "auto":
        found[f"activation_memory: {keys['activation_memory']}"] = {keys["activation_memory"]}
    if keys["activation_offloading"]:
        found["activation_offloading: true"] = {"offload"}
    if (again := keys.get("gradient_checkpointing")) is not None:
        offloads = keys["speedups"]["activation_offload"] == "on" or keys["activation_memory"] == "offload"
        full = {"full", "offload"} if offloads or keys["activation_offloading"] else {"full"}
        found[f"gradient_checkpointing: {str(again).lower()}"] = full if again else {"none"}
    for name, setting in keys["speedups"].items():
        policy = name.removeprefix("activation_")
        if setting != "auto":
            found[f"speedups: {{{name}: {setting}}}"] = {policy} if setting == "on" else {*POLICIES} - {policy}
    return found


def overruled(written: str, keys: dict[str, Any]) -> bool:
    """Whether `speedups` forbids what it asks for: then that wins, as over any other key."""
    off = {name for name, setting in keys["speedups"].items() if setting == "off"}
    key, _, value = written.partition(": ")
    if key == "speedups":
        return False
    asks = {"activation_memory": value, "activation_offloading": "offload"}.get(
        key, "full" if value == "true" else "none"
    )
    return f"activation_{asks}" in off


def positive(written: str) -> bool:
    """Whether it asks for something, and does not only forbid."""
    return not written.endswith(": off}")


def outcome(keys: dict[str, Any]) -> SFTConfig | str:
    """The configuration, or why there is none."""
    try:
        return SFTConfig(**keys)
    except ConfigError as error:
        return str(error)


def test_each_key_is_followed_or_named_or_refused() -> None:
    refused = noted = 0
    for keys in every_combination():
        said = statements(keys)
        over = {written for written in said if overruled(written, keys)}
        left = {written: policies for written, policies in said.items() if written not in over}
        agree = set(POLICIES).intersection(*left.values()) if left else set(POLICIES)
        config = outcome(keys)
        if isinstance(config, str):
            refused += 1
            assert not agree, (keys, config)
            assert sum(written.partition(":")[0] in config for written in said) >= 2, (keys, config)
            continue
        asked = asked_policy(config)
        if not any(positive(written) for written in said):
            assert asked is None, keys
            continue
        assert asked is not None, keys
        if over and over >= {written for written in said if positive(written)}:
            assert asked[0] == "none", (keys, asked)
        broken = [written for written, policies in said.items() if asked[0] not in policies]
        notices = [notice for notice in config.notices if "wins over" in notice]
        assert all(any(f"`{written}`" in notice for notice in notices) for written in broken), (keys, config.notices)
        assert len(notices) == len(broken), (keys, notices)
        noted += bool(broken)
    assert refused > 100
    assert noted > 20, "else nothing was held against anything"


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        (
            {"activation_memory": "full", "activation_offloading": True},
            r"activation_memory: full.*activation_offloading",
        ),
        ({"activation_memory": "none", "gradient_checkpointing": True}, r"activation_memory.*gradient_checkpointing"),
        (
            {"speedups": {"activation_full": "on", "activation_offload": "on"}},
            r"activation_full: on.*activation_offload: on",
        ),
    ],
)
def test_contradictions_name_both(keys: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        SFTConfig(**keys)


def test_what_offloads_computes_layers_again_and_says_so() -> None:
    config = SFTConfig(activation_offloading=True, gradient_checkpointing=False)
    assert any("wins over `gradient_checkpointing: false`" in notice for notice in config.notices)
    assert not SFTConfig(activation_offloading=True, gradient_checkpointing=True).notices


def test_what_speedups_switch_off_is_off_whoever_asks() -> None:
    """As arms of a bench do it, of keys that their author wrote."""
    for keys in ({"gradient_checkpointing": True}, {"activation_memory": "full"}):
        config = SFTConfig(**keys, speedups={"activation_full": "off"})  # type: ignore[arg-type]
        assert asked_policy(config) == ("none", "speedups: {activation_full: off}")
        assert any("`speedups: {activation_full: off}` wins over" in notice for notice in config.notices)
    both = SFTConfig(gradient_checkpointing=True, activation_offloading=True, speedups={"activation_offload": "off"})
    assert asked_policy(both) == ("full", "gradient_checkpointing: true"), "the next key has its turn"
