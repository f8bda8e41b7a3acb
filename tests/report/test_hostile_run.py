"""Promise: the card of a run folder that somebody else made costs a moment, and its values stay values."""

import itertools
import time
from pathlib import Path

import pytest
import yaml

from dynotune.errors import ConfigError
from dynotune.report.model_card import model_card


def test_aliases_in_a_run_folders_configuration_are_bounded(tmp_path: Path) -> None:
    """It is read when an adapter is merged; ten lines named a billion values."""
    names = "abcdefghij"
    lines = ["a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]"]
    lines += [f"{new}: &{new} [{', '.join(['*' + old] * 9)}]" for old, new in itertools.pairwise(names)]
    (tmp_path / "config.yaml").write_text("\n".join(lines))
    began = time.process_time()
    with pytest.raises(ConfigError, match="aliases expand"):
        model_card(tmp_path, {})
    assert time.process_time() - began < 5


def test_a_long_text_named_often_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(f"lora_target_modules: [&a {'x' * 500_000}, {', '.join(['*a'] * 1000)}]")
    with pytest.raises(ConfigError, match="aliases expand"):
        model_card(tmp_path, {})


def test_values_do_not_become_headings_cells_or_the_end_of_a_block(tmp_path: Path) -> None:
    values = {"run_name": "x\n# Taken over\x1b[2J", "dataset_text_field": "a\n```\n# Taken over\n````\n"}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values))
    text = str(model_card(tmp_path, {"steps": "1 | 2\n# Taken over"}).text)
    outside, fence = [], ""
    for line in text.split("\n"):
        if fence:
            fence = "" if line.strip() == fence else fence
        elif line.startswith("```"):
            fence = "`" * (len(line) - len(line.lstrip("`")))
        else:
            outside.append(line)
    assert "x\\n# Taken over\\x1b[2J" in text
    assert not fence
    assert not [line for line in outside if line.startswith("# Taken")]
    assert "\x1b" not in text
