"""Promise: the command that measures a remedy names files that the project has, or there is none."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

LOOP = """import time
import torch

model.cuda()
start = time.time()
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(len(loader) / (time.time() - start))
"""
SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\n"


@pytest.mark.parametrize("name", ["train.py", "src/finetune.py"])
def test_the_projects_own_script(tmp_path: Path, name: str) -> None:
    (found,) = audited(tmp_path, {name: LOOP}, select=("MSR002",)).findings
    assert found.remedy.measure == f"dynotune profile -- python {name}"


def test_one_of_several_scripts(tmp_path: Path) -> None:
    files = {"a.py": LOOP, "b.py": LOOP.replace("time.time() - start", "1")}
    (found,) = audited(tmp_path, files, select=("MSR002",)).findings
    assert found.remedy.measure == "dynotune profile -- python a.py"


def test_a_configuration_of_another_name(tmp_path: Path) -> None:
    config = f"{SFT}train_sampling_strategy: group_by_length\npacking: true\n"
    (found,) = audited(tmp_path, {"conf/mine.yaml": config}, select=("PAD004",)).findings
    assert "sft.yaml" not in found.remedy.measure
