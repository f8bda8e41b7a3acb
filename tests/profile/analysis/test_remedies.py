"""Promise: what would help is listed once, with the largest of what it may gain."""

import shlex
from dataclasses import replace

import pytest

from dynotune.config.secrets import without_secret_words
from dynotune.profile.analysis.findings import Finding
from dynotune.profile.analysis.remedies import NO_EDIT, THEIRS, ranked, remedy
from dynotune.profile.foreign.as_record import measuring
from dynotune.profile.showing.shown import remedy_in_words
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


@pytest.mark.parametrize("trainer", ["trl", "transformers"])
def test_nobody_on_a_cpu_is_told_to_take_a_flash_kernel(trainer: str) -> None:
    """TRL's `padding_free` without one lets documents see each other."""
    gpu = replace(record(), trainer=trainer)
    cpu = replace(gpu, environment=replace(gpu.environment, device="cpu"))
    for name in ("low-fill", "padding-mask", "dense-mask"):
        assert remedy(gpu, name, 0.3, 1.0) is not None
        assert remedy(cpu, name, 0.3, 1.0) is None
    assert remedy(cpu, "slow-log", 0.3, 1.0) is not None


def test_transformers_own_trainer_is_told_what_it_has() -> None:
    theirs = replace(record(), trainer="transformers")
    one = remedy(theirs, "low-fill", 0.3, 1.0)
    assert one is not None
    assert one.setting == "data_collator=DataCollatorWithFlattening()"
    alone = remedy(replace(record(), trainer="torch"), "low-fill", 0.3, 1.0)
    assert alone is not None
    assert alone.setting == ""


def test_trls_own_command_is_measured_with_the_change_as_a_flag() -> None:
    """Settings that are no flag have none written for them; a secret is not shown."""
    words = ["/usr/bin/trl", "sft", "--model_name_or_path", "m", "--hub_token", "hf_abcdefghijklmnopqrstuvwxyz"]
    trl = replace(record(), trainer="trl", measuring=measuring(words))
    advice = remedy(trl, "low-fill", 1e-4, 1e-3)
    assert advice is not None
    assert advice.command.startswith("dynotune bench -- /usr/bin/trl sft --model_name_or_path m --hub_token ")
    assert advice.command.endswith(" --padding_free True")
    assert " :: /usr/bin/trl sft " in advice.command
    assert "hf_abc" not in advice.command
    for no_flag in ("weights-elsewhere", "exposed-communication"):
        other = remedy(trl, no_flag, 1e-4, 1e-3)
        assert other is not None
        assert other.command == ""
    quoted = remedy(trl, "unfused-optimizer", 1e-4, 1e-3)
    assert quoted is not None
    assert quoted.command.endswith(" --optim adamw_torch_fused")
    variable = remedy(trl, "allocator-retries", 1e-4, 1e-3)
    assert variable is not None
    assert " :: env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True /usr/bin/trl sft " in variable.command


SCRIPT = ["python", "src/train.py", "--hub_token", "hf_abcdefghijklmnopqrstuvwxyz"]


@pytest.mark.parametrize("trainer", ["transformers", "torch", "trl"])
@pytest.mark.parametrize("name", sorted({*THEIRS} - NO_EDIT - {"allocator-retries"}))
def test_a_script_is_measured_beside_a_copy_that_has_the_edit(trainer: str, name: str) -> None:
    """Its flags are not known. The command is one that bench takes: two arms, each whole."""
    one = remedy(replace(record(), trainer=trainer, measuring=measuring(SCRIPT)), name, 1e-4, 1e-3)
    assert one is not None
    hidden = without_secret_words(SCRIPT)
    arms = one.command.removeprefix("dynotune bench -- ").split(" :: ")
    assert [shlex.split(arm) for arm in arms] == [hidden, [hidden[0], "src/train_edited.py", *hidden[2:]]]
    assert "hf_abc" not in one.command
    assert "to measure it, write it into train_edited.py, a copy of train.py beside it" in remedy_in_words(one)


def test_a_variable_needs_no_edit_and_what_is_no_edit_has_no_command() -> None:
    plain = replace(record(), trainer="torch", measuring=measuring(["python", "train.py"]))
    one = remedy(plain, "allocator-retries", 1e-4, 1e-3)
    assert one is not None
    env = "env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    assert (one.command, one.first) == (f"dynotune bench -- python train.py :: {env} python train.py", "")
    for name in NO_EDIT:
        other = remedy(plain, name, 1e-4, 1e-3)
        assert other is not None
        assert (other.command, other.first) == ("", "")


@pytest.mark.parametrize("words", [["python", "-m", "project.train"], ["python", "launch.py", "train.py"], ["make"]])
def test_where_it_is_not_plain_what_the_script_is_nothing_is_written(words: list[str]) -> None:
    one = remedy(replace(record(), trainer="torch", measuring=measuring(words)), "host-reads", 1e-4, 1e-3)
    assert one is not None
    assert (measuring(words), one.command, one.first) == ("", "", "")
