"""Promise: what would help is listed once, with the largest of what it may gain."""

from dataclasses import replace

from dynotune.profile.findings import Finding
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
