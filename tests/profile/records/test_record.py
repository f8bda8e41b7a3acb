"""Promise: what was observed goes through a file and means the same; what is no record is refused in words."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from dynotune.errors import DataError
from dynotune.profile.analysis.analyse import analyse
from dynotune.profile.records.record import Environment, Memory, ModelFacts, of_plain
from dynotune.profile.records.record_file import of_json, read_record, to_json, write_record
from tests.profile.made import record


def test_a_record_means_the_same_behind_a_file(tmp_path: Path) -> None:
    one = record()
    write_record(one, tmp_path / "record.json.gz")
    again = read_record(tmp_path / "record.json.gz")
    assert to_json(again) == to_json(one)
    assert analyse(again) == analyse(one)


@pytest.mark.parametrize("text", [b"{}", b"[]", b"no JSON", b'{"trainer": "dynotune", "timed": 3}'])
def test_what_is_no_record_is_refused(text: bytes) -> None:
    with pytest.raises(DataError, match="no record of a profile"):
        of_json(text)


def test_a_damaged_trace_and_another_format_are_refused(tmp_path: Path) -> None:
    text = to_json(record())
    with pytest.raises(DataError, match="no record"):
        of_json(text.replace(b'"start":[', b'"start":[7,', 1))
    with pytest.raises(DataError, match="format 99"):
        of_json(text.replace(b'"format":1', b'"format":99', 1))
    path = tmp_path / "plain.json"
    path.write_bytes(text)
    with pytest.raises(DataError, match="no record"):
        read_record(path)
    path.write_bytes(gzip.compress(text)[:-20])
    with pytest.raises(DataError, match="no record"):
        read_record(path)


def test_facts_are_plain_where_no_package_of_ours_is() -> None:
    """As in the process of a script of somebody else. The control is the record itself, which needs pydantic."""
    program = """
import json, sys
ours = ("pydantic", "psutil", "transformers", "rich")
sys.modules.update(dict.fromkeys(ours))
import torch
from dynotune.profile.records.facts import environment_of, memory_of, model_facts, optimizer_name
model = torch.nn.Linear(2, 3)
cpu = torch.device("cpu")
told = [model_facts(model, model, model), environment_of(cpu), memory_of(cpu)]
print(json.dumps([*told, optimizer_name(torch.optim.AdamW(model.parameters()))]))
try:
    import dynotune.profile.records.record
except ImportError:
    print("control")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told, control = done.stdout.splitlines()
    assert control == "control"
    model, environment, memory, optimizer = json.loads(told)
    assert of_plain(ModelFacts, model).parameters == 9
    assert of_plain(Environment, environment).device == "cpu"
    assert of_plain(Memory, memory) == Memory()
    assert optimizer == "AdamW (for-loop)"
