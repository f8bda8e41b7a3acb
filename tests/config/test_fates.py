"""Nothing silent: every field of the installed TRL has exactly one fate, and our defaults are TRL's or say why not."""

import dataclasses
from typing import Any

import pytest

from dynotune.config.dpo import DPOConfig
from dynotune.config.fates.dpo import OLDER_DPO, REFUSED_IN_DPO, REFUSED_IN_SFT
from dynotune.config.fates.fate import Kind, same
from dynotune.config.fates.launcher import LAUNCHER, launcher_fate
from dynotune.config.fates.legacy import LEGACY, RENAMED
from dynotune.config.fates.names import OPTIMIZERS, SCHEDULES
from dynotune.config.fates.table import DPO_FATES, FATES, NEWER_FIELDS, OTHER_DEFAULTS
from dynotune.config.keys.data import DatasetEntry
from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError

trl = pytest.importorskip("trl", reason="the table is tested against the installed TRL")

CLASSES = ["SFTConfig", "DPOConfig", "ModelConfig", "ScriptArguments", "DatasetMixtureConfig", "DatasetConfig"]


def fields_of(name: str) -> dict[str, Any]:
    """TRL's fields and their defaults."""
    import trl.scripts.utils as scripts

    found = getattr(trl, name, None) or getattr(scripts, name)
    fields = {}
    for field in dataclasses.fields(found):
        if field.default is not dataclasses.MISSING:
            fields[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            fields[field.name] = field.default_factory()
        else:
            fields[field.name] = dataclasses.MISSING
    return fields


def without_fate(fields: set[str], table: set[str]) -> tuple[set[str], set[str]]:
    """Fields that lack a fate, and fates that lack a field."""
    return fields - table, table - fields - NEWER_FIELDS


def plain(default: Any) -> Any:
    """Enums as their values; empty mappings and lists as None, since both say nothing."""
    default = getattr(default, "value", default)
    return None if default in ({}, [], "") else default


@pytest.mark.parametrize("name", CLASSES)
def test_every_field_has_exactly_one_fate(name: str) -> None:
    """A field that TRL adds, and a fate of a field that TRL drops, both fail here."""
    lacking, stale = without_fate(set(fields_of(name)), set(FATES[name]))
    assert not lacking, f"fields of {name} without a fate"
    assert not stale, f"fates of fields that {name} does not have"


def test_the_walk_notices_a_new_and_a_dropped_field() -> None:
    """Negative control of the walk."""
    table = set(FATES["SFTConfig"])
    assert without_fate({*fields_of("SFTConfig"), "brand_new"}, table)[0] == {"brand_new"}
    assert without_fate(set(fields_of("SFTConfig")) - {"packing"}, table)[1] == {"packing"}


SHARED_CLASSES = [(name, model) for name in CLASSES[2:5] for model in (SFTConfig, DPOConfig)]


@pytest.mark.parametrize(
    ("name", "model"),
    [("SFTConfig", SFTConfig), ("DPOConfig", DPOConfig), ("DatasetConfig", DatasetEntry), *SHARED_CLASSES],
)
def test_honoured_fields_are_declared_with_the_default_of_trl(name: str, model: Any) -> None:
    """What changes updates keeps TRL's default; any other default is listed with its reason."""
    for field, default in fields_of(name).items():
        fate = FATES[name][field]
        assert fate.reason or fate.kind is Kind.HONOURED, f"{field}: a fate that is not honoured gives its reason"
        assert bool(fate.speedups) or fate.kind is not Kind.MAPPED
        if fate.kind not in (Kind.HONOURED, Kind.MAPPED):
            assert field not in model.model_fields, f"{field} is declared but not honoured"
            continue
        ours = model.model_fields[fate.key or field]
        if default is dataclasses.MISSING:
            assert ours.is_required()
        elif field in OTHER_DEFAULTS:
            assert plain(ours.get_default(call_default_factory=True)) != plain(default)
        else:
            assert plain(ours.get_default(call_default_factory=True)) == plain(default), field


@pytest.mark.parametrize("name", CLASSES)
def test_the_table_knows_the_defaults_of_other_fields(name: str) -> None:
    """A default that is written out in a TRL file is accepted without a word, so it must be known."""
    for field, default in fields_of(name).items():
        fate = FATES[name][field]
        if fate.kind is not Kind.HONOURED and field != "logging_nan_inf_filter":
            assert plain(fate.default) == plain(default), field


@pytest.mark.parametrize("ours", [SFTConfig, DPOConfig])
def test_every_default_of_trl_written_out_is_accepted_without_a_word(ours: Any) -> None:
    """A TRL file that spells out every default runs as it stands."""
    given = {}
    for name in [ours.__name__, "ModelConfig", "ScriptArguments", "DatasetMixtureConfig"]:
        given.update({field: getattr(value, "value", value) for field, value in fields_of(name).items()})
    # The one default that asks for something that Dynotune never does.
    filtered = given.pop("logging_nan_inf_filter")
    assert ours(**given).notices == []
    assert "never replaced" in ours(logging_nan_inf_filter=filtered).notices[0]


def fields_with(kind: Kind) -> list[tuple[Any, str]]:
    """Every configuration with its fields of one fate."""
    dpo = {**OLDER_DPO, **REFUSED_IN_DPO, **FATES["DPOConfig"]}
    return [
        (config, field)
        for config, table in ((SFTConfig, FATES["SFTConfig"]), (DPOConfig, dpo))
        for field, fate in table.items()
        if fate.kind is kind
    ]


@pytest.mark.parametrize(("config", "field"), fields_with(Kind.SUPERSEDED))
def test_a_superseded_field_is_said_once(config: Any, field: str) -> None:
    """Accepted is not the same as silent."""
    fate = config.method.fates[field]
    candidates = [7, "text", True, {"a": 1}, False]
    told = [
        value for value in candidates if not fate.is_noop(value) and not any(same(value, bad) for bad in fate.refuses)
    ]
    if not told:
        assert fate.is_noop(True)
        assert fate.is_noop(False)
        return
    notices = config(**{field: told[0]}).notices
    assert len(notices) == 1
    assert field in notices[0]
    assert fate.reason in notices[0]


DONE_ANYWAY = {
    "do_train": True,
    "logging_nan_inf_filter": False,
    "enable_jit_checkpoint": True,
    "skip_memory_metrics": False,
    "use_logits_to_keep": True,
    "use_num_logits_to_keep": True,
}
"""Superseded switches whose other setting asks for what Dynotune always does: nothing is ignored, so nothing is said."""


@pytest.mark.parametrize(("config", "field"), fields_with(Kind.SUPERSEDED))
def test_the_other_setting_of_a_superseded_switch_is_said(config: Any, field: str) -> None:
    """A value of the field's own type: one of another type (7) is never among those that are silent."""
    fate = config.method.fates[field]
    if not isinstance(fate.default, bool) or any(same(not fate.default, bad) for bad in fate.refuses):
        return
    other = not fate.default
    notices = config(**{field: other}).notices
    assert (field in DONE_ANYWAY and other is DONE_ANYWAY[field]) != any(field in notice for notice in notices)


@pytest.mark.parametrize(("config", "field"), fields_with(Kind.REFUSED))
def test_a_refused_field_says_why_and_what_instead(config: Any, field: str) -> None:
    """Refused with the reason; no quiet fallback."""
    fate = config.method.fates[field]
    value = next(value for value in [True, "text", False] if not fate.is_noop(value))
    with pytest.raises(ConfigError, match=field) as caught:
        config(**{field: value})
    assert fate.reason in str(caught.value)
    assert fate.instead[1:] in str(caught.value)


@pytest.mark.parametrize("field", ["beta", "precompute_ref_log_probs", "label_smoothing"])
def test_fields_of_dpo_are_refused_even_at_their_default(field: str) -> None:
    """`trl sft` does not know them either, so none is dropped quietly."""
    with pytest.raises(ConfigError, match="it belongs to preference training"):
        SFTConfig(**{field: REFUSED_IN_SFT[field].default})


def test_names_of_schedules_and_optimizers_are_those_of_transformers() -> None:
    """A misspelled name is caught early; a right one of the installed transformers never is."""
    from transformers.trainer_utils import SchedulerType
    from transformers.training_args import OptimizerNames

    assert {member.value for member in SchedulerType} <= set(SCHEDULES)
    assert {member.value for member in OptimizerNames} <= set(OPTIMIZERS)


def test_every_launcher_flag_of_accelerate_has_a_fate() -> None:
    """`trl sft` hands unknown keys to `accelerate launch`; none of them is unknown here."""
    from accelerate.commands.launch import launch_command_parser

    known_elsewhere = {"help", "training_script", "training_script_args", "debug", "env", "use_cpu"}
    for action in launch_command_parser()._actions:
        name = action.dest
        if name in known_elsewhere or name in SFTConfig.model_fields:
            continue
        assert launcher_fate(name) is not None, name


def test_old_names_lead_to_keys_that_exist_and_have_one_fate() -> None:
    """No name stands in two tables."""
    assert set(RENAMED.values()) <= set(SFTConfig.model_fields)
    tables = [set(SFTConfig.model_fields), set(FATES["SFTConfig"]), set(RENAMED), set(LEGACY), set(LAUNCHER)]
    for one in range(2, len(tables)):
        for other in range(one):
            assert not tables[one] & tables[other] - {"overwrite_output_dir"}
    for older in OLDER_DPO:
        assert older not in DPOConfig.model_fields
        assert older not in fields_of("DPOConfig")
        assert older not in LEGACY


def test_each_method_refuses_what_only_the_other_has() -> None:
    """What TRL's SFTConfig has and its DPOConfig lacks is refused in a DPO run, or is ours for both; and the reverse."""
    sft, dpo = fields_of("SFTConfig"), fields_of("DPOConfig")
    for_both = {"chat_template_path", "eos_token", "shuffle_dataset"}
    assert set(sft) - set(dpo) == set(REFUSED_IN_DPO) | for_both
    assert for_both <= set(DPOConfig.model_fields)
    assert set(dpo) - set(sft) == set(REFUSED_IN_SFT)
    for field in REFUSED_IN_SFT:
        assert plain(REFUSED_IN_SFT[field].default) == plain(dpo[field])
    assert DPOConfig.method.without == set(REFUSED_IN_DPO) & set(DPOConfig.model_fields)
    assert set(DPO_FATES) >= set(dpo) | set(REFUSED_IN_DPO)
