"""Promise: what would help is listed once, with the largest of what it may gain."""

import shlex
from dataclasses import replace
from typing import Any

import pytest

from dynotune.config.secrets import without_secret_words
from dynotune.profile.analysis.analyse import analyse
from dynotune.profile.analysis.findings import Finding, Findings, Kind
from dynotune.profile.analysis.remedies import NO_EDIT, THEIRS, ranked, remedy
from dynotune.profile.foreign.as_record import measuring
from dynotune.profile.records.record import Environment, Record
from dynotune.profile.showing.shown import NOTHING, remedy_in_words, shown
from dynotune.show.grids import Line, Tone
from tests.profile.made import busy, record, timed


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
    gpu = replace(record(), trainer=trainer, method="sft")
    cpu = on_a_cpu(gpu)
    for name in ("low-fill", "padding-mask"):
        one, other = remedy(gpu, name, 0.3, 1.0), remedy(cpu, name, 0.3, 1.0)
        assert one is not None
        assert other is not None
        assert "flash" in one.text
        assert "flash" not in other.text
        assert other.setting == 'train_sampling_strategy="group_by_length"'
        assert other.kind is Kind.BEHAVIOURAL
    assert remedy(gpu, "dense-mask", 0.3, 1.0) is not None
    assert remedy(cpu, "dense-mask", 0.3, 1.0) is None
    assert remedy(cpu, "slow-log", 0.3, 1.0) is not None


def on_a_cpu(one: Record) -> Record:
    return replace(one, environment=replace(one.environment, device="cpu"))


@pytest.mark.parametrize(
    ("trainer", "arguments", "setting", "says"),
    [
        ("torch", {}, "", "longest row"),
        ("transformers", {}, 'train_sampling_strategy="group_by_length"', "longest row"),
        ("transformers", {"group_by_length": False}, "group_by_length=True", "like length"),
        ("transformers", {"train_sampling_strategy": "group_by_length"}, "", "longest row"),
        ("trl", {"train_sampling_strategy": "random"}, 'train_sampling_strategy="group_by_length"', "like length"),
        ("trl", {"group_by_length": True}, None, ""),
    ],
)
def test_padding_has_what_each_loop_has_for_it(
    trainer: Any, arguments: dict[str, Any], setting: str | None, says: str
) -> None:
    """By the name that its version of transformers has, and not what runs already: TRL pads to the longest row anyway."""
    cpu = on_a_cpu(replace(record(), trainer=trainer, method="sft", arguments=arguments))
    one = remedy(cpu, "low-fill", 0.3, 1.0)
    assert (None if one is None else one.setting) == setting
    assert one is None or says in one.text


@pytest.mark.parametrize("method", ["dpo", "kto", "reward", "grpo", "rloo"])
def test_rows_of_like_length_are_advised_only_where_trl_can_have_them(method: str) -> None:
    """Others raise at the setting, refuse it or take no notice. The control is SFT."""
    cpu = on_a_cpu(replace(record(), trainer="trl", arguments={"train_sampling_strategy": "random"}))
    for name in ("low-fill", "padding-mask"):
        assert remedy(replace(cpu, method=method), name, 0.3, 1.0) is None
        assert remedy(replace(cpu, method="sft"), name, 0.3, 1.0) is not None


def test_a_plain_loop_on_a_gpu_is_told_both() -> None:
    one = remedy(replace(record(), trainer="torch"), "low-fill", 0.3, 1.0)
    assert one is not None
    assert "longest row" in one.text
    assert "flash kernel" in one.text


def padded(**more: Any) -> Findings:
    tokens = {"real_tokens": 300, "processed_tokens": 1000}
    return analyse(replace(record(timed=timed(1e-3, **tokens), traced=(busy().traced(**tokens),)), **more))


def test_a_bottleneck_that_nothing_is_known_for_is_not_called_nothing_worth_doing() -> None:
    """TRL with rows of like length on a CPU."""
    found = padded(trainer="trl", arguments={"group_by_length": True}, environment=Environment("cpu"))
    assert found.remedies == ()
    assert "are padding" in found.bottleneck
    ((line, command),) = shown(replace(found, on_device=False)).remedies
    assert (line.text, command) == ("the bottleneck (low-fill): no setting is known for it on a CPU", "")


def test_the_same_stands_below_remedies_of_other_things() -> None:
    found = padded(trainer="trl", arguments={"group_by_length": True}, environment=Environment("cpu"))
    other = remedy(replace(record(), trainer="trl"), "slow-log", 1e-4, 1e-3)
    assert other is not None
    both = shown(replace(found, on_device=False, remedies=(other,)))
    assert [line.text for line in both.ruled_out] == ["the bottleneck (low-fill): no setting is known for it on a CPU"]


def test_a_clean_run_has_nothing_worth_doing() -> None:
    """The control; and a bottleneck that has a remedy is followed by that."""
    assert shown(analyse(record())).remedies == ((Line(NOTHING, Tone.GOOD), ""),)
    assert shown(analyse(record())).ruled_out == ()
    one = shown(padded(trainer="torch", environment=Environment("cpu")))
    assert "longest row" in one.remedies[0][0].text
    assert one.ruled_out == ()


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
