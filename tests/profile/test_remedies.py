"""Promise: what would help is listed once, with the largest of what it may gain."""

from dataclasses import replace

from dynotune.profile.findings import Finding
from dynotune.profile.foreign.as_record import measuring
from dynotune.profile.remedies import ranked, remedy
from tests.profile.made import record


def test_two_findings_that_the_same_setting_mends_give_one_line() -> None:
    theirs = replace(record(), trainer="trl")
    found = [
        Finding(name, "seen", saves, remedy(theirs, name, saves, 1.0))
        for name, saves in (("low-fill", 0.3), ("padding-mask", 0.2), ("slow-log", 0.1))
    ]
    assert [(one.setting, one.saves) for one in ranked(theirs, None, found)] == [
        ("padding_free=True", 0.3),
        ("logging_steps=100", 0.1),
    ]


def test_transformers_own_trainer_is_told_what_it_has() -> None:
    theirs = replace(record(), trainer="transformers")
    one = remedy(theirs, "low-fill", 0.3, 1.0)
    assert one is not None
    assert one.setting == "data_collator=DataCollatorWithFlattening()"
    alone = remedy(replace(record(), trainer="torch"), "low-fill", 0.3, 1.0)
    assert alone is not None
    assert alone.setting == ""


def test_trls_own_command_is_measured_with_the_change_as_a_flag() -> None:
    """A script's flags are not known, so that nothing is written for it; nor is a secret."""
    words = ["/usr/bin/trl", "sft", "--model_name_or_path", "m", "--hub_token", "hf_abcdefghijklmnopqrstuvwxyz"]
    trl = replace(record(), trainer="trl", measuring=measuring(words))
    advice = remedy(trl, "low-fill", 1e-4, 1e-3)
    assert advice is not None
    assert advice.command.startswith("dynotune bench -- /usr/bin/trl sft --model_name_or_path m --hub_token ")
    assert advice.command.endswith(" --padding_free True")
    assert " :: /usr/bin/trl sft " in advice.command
    assert "hf_abc" not in advice.command
    for no_flag in ("weights-elsewhere", "allocator-retries", "exposed-communication"):
        other = remedy(trl, no_flag, 1e-4, 1e-3)
        assert other is not None
        assert other.command == ""
    quoted = remedy(trl, "unfused-optimizer", 1e-4, 1e-3)
    assert quoted is not None
    assert quoted.command.endswith(" --optim adamw_torch_fused")
    assert measuring(["python", "train.py", "sft"]) == ""
