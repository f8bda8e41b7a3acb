"""Promise: what `--fix` would refuse is not counted among what it does."""

from pathlib import Path

import pytest

from dynotune.audit.show.words import next_action
from tests.audit.made_up import audited

SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\n{}: adamw_torch\n"


@pytest.mark.parametrize(
    ("name", "text", "goes"),
    [
        ("sft.yaml", SFT.format("optim"), True),
        ("sft.yaml", SFT.format("name: &it adamw_torch\noptim").replace(": adamw_torch\n", ": *it\n"), False),
        (
            "sft.toml",
            'model_name_or_path = "Qwen/Qwen2.5-0.5B"\ndataset_name = "d.jsonl"\noptim = "adamw_torch"\n',
            False,
        ),
    ],
)
def test_what_fix_does_not_do_is_not_promised(tmp_path: Path, name: str, text: str, goes: bool) -> None:
    result = audited(tmp_path, {name: text}, select=("OPT001",))
    assert len(result.findings) == 1
    assert bool(result.refused) is not goes
    assert ("--fix" in next_action(result)) is goes
