"""Promise: what a text says is won by a setting is no doubt about it, and a doubt still is one."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d.jsonl\nbf16: true\npacking: {}\noutput_dir: o\n"


@pytest.mark.parametrize(
    ("said", "packing", "found"),
    [
        ("Examples are packed to 2048 tokens so no compute is wasted on padding.", "false", 1),
        ("Rows are packed, so that nothing is lost to padding.", "false", 1),
        ("Examples are packed to 2048 tokens so no compute is wasted on padding.", "true", 0),
        ("Examples are packed if no compute is to be wasted.", "false", 0),
        ("Examples are not packed, so that none is cut.", "false", 0),
    ],
)
def test_packing(tmp_path: Path, said: str, packing: str, found: int) -> None:
    files = {"a.yaml": SFT.format(packing), "run.sh": "trl sft --config a.yaml\n", "README.md": f"# x\n\n{said}\n"}
    assert len(audited(tmp_path / "a", files, select=("CFG011",)).findings) == found
