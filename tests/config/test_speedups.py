"""Promise: what is asked of a speed-up reaches one that is there, by whichever key and spelling, or is an error."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dynotune.cli import app
from dynotune.config.fates.fate import Kind
from dynotune.config.fates.table import SFT_FATES
from dynotune.config.load import load_config
from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError
from dynotune.handbook.schema import json_schema
from dynotune.speedups.contract import Context, Installation, No, Setting, Speedup
from dynotune.speedups.expectation import Expectation
from dynotune.speedups.registry import register, speedups, switches, unregister
from dynotune.speedups.site import Site


@pytest.fixture(autouse=True)
def toys() -> Iterator[None]:
    """Two speed-ups, one of which `bf16` asks for."""

    class Toy(Speedup):
        name = "toy_kernel"
        summary = "Does nothing."

        def asked(self, config: SFTConfig) -> tuple[Setting, str] | None:
            return ("on", "bf16: true") if config.bf16 else None

        def applicable(self, context: Context) -> No | None:
            return None

        def install(self, site: Site) -> Installation | No:
            return No("it is a toy")

        def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
            return []

    register(Toy)
    register(type("OtherToy", (Toy,), {"name": "other_toy", "asked": Speedup.asked}))
    yield
    unregister("toy_kernel")
    unregister("other_toy")


YAMLS = {
    "toy_kernel: on": "on",
    "toy_kernel: off": "off",
    "toy_kernel: 'on'": "on",
    "toy_kernel: true": "on",
    "toy_kernel: no": "off",
    "toy_kernel: Auto": "auto",
}


@pytest.mark.parametrize("text", YAMLS)
def test_on_and_off_are_words_also_where_yaml_reads_booleans(text: str, tmp_path: Path) -> None:
    path = tmp_path / "sft.yaml"
    path.write_text(f"speedups: {{{text}}}\n")
    config = load_config(path)
    assert config.speedups == {"toy_kernel": YAMLS[text]}
    path.write_text(config.to_yaml())
    assert load_config(path).speedups == config.speedups


def from_flags(*words: str) -> SFTConfig:
    """The configuration that a command line gives."""
    from dynotune.cli_keys import load

    _, bound, _ = app.parse_args(["sft", *words], exit_on_error=False, print_error=False)
    own = ("print_config", "prove_only", "no_prove", "as_json")
    keys = {name: value for name, value in bound.arguments.items() if name != "config" and name not in own}
    return load(bound.arguments.get("config"), keys.get("keys", keys), SFTConfig, to_run=False)


@pytest.mark.parametrize(
    "words",
    [
        ["--speedups", "{packed_execution: on}"],
        ["--speedups", '{"packed_execution": "on"}'],
        ["--speedups", "packed_execution=on"],
        ["--speedups.packed_execution", "on"],
        ["--speedups.packed-execution", "on"],
        ["--speedups.packed_execution=on"],
        ["--speedups.packed_execution", "true"],
    ],
)
def test_the_command_line_takes_a_mapping_or_one_flag_each(words: list[str]) -> None:
    assert from_flags(*words).speedups == {"packed_execution": "on"}


def test_a_flag_for_one_speed_up_leaves_the_others_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "sft.yaml"
    path.write_text("speedups: {other_toy: off}\n")
    config = load_config(path, {"speedups.toy_kernel": "on"})
    assert config.speedups == {"other_toy": "off", "toy_kernel": "on"}
    assert load_config(path, {"speedups.other_toy": "on"}).speedups == {"other_toy": "on"}
    assert load_config(path, {"speedups": {"toy_kernel": "on"}}).speedups == {"toy_kernel": "on"}


def test_a_flag_with_a_name_that_is_none_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"(?s)speedups\.toy_kernl.*toy_kernel"):
        load_config(None, {"speedups.toy_kernl": "on"})


def test_a_name_that_no_speed_up_has_is_an_error_with_the_nearest_one(tmp_path: Path) -> None:
    path = tmp_path / "sft.yaml"
    path.write_text("seed: 1\nspeedups:\n  toy_kernl: on\n")
    with pytest.raises(ConfigError, match=r"sft.yaml, line 2.*toy_kernl.*[Dd]id you mean `toy_kernel`"):
        load_config(path)
    with pytest.raises(ConfigError, match=r"There are: .*toy_kernel"):
        SFTConfig(speedups={"qqq": "on"})


@pytest.mark.parametrize("value", ["always", 1, None, ["on"]])
def test_a_setting_is_one_of_three_words(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"speedups"):
        SFTConfig(speedups={"toy_kernel": value})


def test_speedups_wins_over_another_key_and_says_so() -> None:
    config = SFTConfig(bf16=True, speedups={"toy_kernel": "off"})
    assert any("wins over `bf16: true`" in notice for notice in config.notices)
    assert SFTConfig(bf16=True, speedups={"toy_kernel": "on"}).notices == []
    assert SFTConfig(speedups={"toy_kernel": "off"}).notices == []


ASKING = {
    "padding_free": True,
    "torch_compile": True,
    "torch_compile_backend": "inductor",
    "torch_compile_mode": "default",
    "use_liger_kernel": True,
    "liger_kernel_config": {"rope": True},
    "activation_offloading": True,
}


def test_every_mapped_field_has_a_value_here_that_asks() -> None:
    assert set(ASKING) == {field for field, fate in SFT_FATES.items() if fate.kind is Kind.MAPPED}


@pytest.mark.parametrize("field", ASKING)
def test_a_mapped_field_is_read_by_its_speed_up_or_refused(field: str) -> None:
    """A flag that nobody reads is a lie."""
    given = {field: ASKING[field]} | ({"use_liger_kernel": True} if field == "liger_kernel_config" else {})
    there = [speedups()[name] for name in SFT_FATES[field].speedups if name in speedups()]
    if not there:
        with pytest.raises(ConfigError, match=f"{field}.*{SFT_FATES[field].speedups[0]}.*lacks"):
            SFTConfig(**given)
        return
    config, without = SFTConfig(**given), SFTConfig()
    assert any(one.asked(config) != one.asked(without) for one in there)


def test_padding_free_asks_for_packed_execution() -> None:
    assert SFTConfig().execution == ("auto", "packed_execution: auto")
    assert SFTConfig(packed_execution="off").execution == ("off", "packed_execution: off")
    assert SFTConfig(padding_free=True).execution == ("on", "padding_free: true")
    named = SFTConfig(padding_free=True, speedups={"packed_execution": "off"})
    assert named.execution == ("off", "speedups: {packed_execution: off}")
    assert any("wins over `padding_free: true`" in notice for notice in named.notices)
    with pytest.raises(ConfigError, match=r"padding_free.*packed_execution: off"):
        SFTConfig(padding_free=True, packed_execution="off")


def test_the_schema_lists_every_speed_up_and_judges_its_setting() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json_schema(SFTConfig)
    entries = schema["properties"]["speedups"]["properties"]
    assert set(entries) == set(switches())
    assert set(speedups()) - set(entries) == {"eight_bit_optimizer"}, "what follows another key is none"
    assert "Does nothing." in entries["toy_kernel"]["description"]
    assert "exact" in entries["toy_kernel"]["description"]
    validator = jsonschema.Draft202012Validator(schema)
    for good in ("auto", "on", "off", True, False):
        assert validator.is_valid({"speedups": {"toy_kernel": good}})
    for bad in ({"toy_kernl": "on"}, {"toy_kernel": "always"}, {"toy_kernel": 1}):
        assert not validator.is_valid({"speedups": bad})


def test_asking_the_registry_for_names_loads_no_pytorch() -> None:
    """The configuration asks it, and a command line must not wait for that."""
    import subprocess
    import sys

    code = (
        "import sys, dynotune.speedups.registry as r; r.speedups(); print({'torch', 'transformers'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_every_speed_up_says_in_words_what_it_does_and_what_its_proof_looks_for() -> None:
    for name, one in speedups().items():
        if name not in ("toy_kernel", "other_toy"):
            assert one.summary.endswith("."), name
            assert one.proof.endswith("."), name


def test_every_speed_up_that_a_key_or_another_trainers_name_points_to_is_there() -> None:
    import re

    from dynotune.config.fates.aliases import ALIASES

    named = {name for fate in SFT_FATES.values() for name in fate.speedups}
    named |= {name for alias in ALIASES.values() for name in re.findall(r"speedups: \{(\w+):", alias.suggestion)}
    assert named <= set(speedups())


def test_an_optimizer_of_the_fused_name_gives_way_and_that_is_said() -> None:
    """Control: where nobody wrote `optim`, or wrote one that does not say how it is computed, nothing is in the way."""
    off: Any = {"speedups": {"fused_optimizer": "off"}}
    assert any(
        "wins over `optim: adamw_torch_fused`" in one for one in SFTConfig(optim="adamw_torch_fused", **off).notices
    )
    assert SFTConfig(**off).notices == []
    assert SFTConfig(optim="adamw_torch", **off).notices == []
