"""Promise: a place in a notebook is told as its reader counts, by cell and line."""

import json
from pathlib import Path

from dynotune.audit.show.sarif import sarif
from tests.audit.made_up import audited


def test_a_place_in_a_notebook(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Adapters"]},
        {"cell_type": "code", "source": ["import torch\n", "from transformers import BitsAndBytesConfig"]},
        {"cell_type": "code", "source": ["torch.manual_seed(1)\n", "four = BitsAndBytesConfig(load_in_4bit=True)"]},
    ]
    result = audited(tmp_path, {"a.ipynb": json.dumps({"cells": cells})}, select=("PRC006",))
    (found,) = result.findings
    assert str(found.place) == "a.ipynb, cell 3, line 2"
    (location,) = sarif(result, lambda finding: {})["runs"][0]["results"][0]["locations"]
    assert location["message"]["text"] == "cell 3, line 2"
    assert "region" not in location["physicalLocation"]  # its lines are not those of the JSON


def test_a_script_has_lines_alone(tmp_path: Path) -> None:
    text = "# cell 1\nfrom transformers import BitsAndBytesConfig\nfour = BitsAndBytesConfig(load_in_4bit=True)\n"
    (found,) = audited(tmp_path, {"a.py": text}, select=("PRC006",)).findings
    assert str(found.place) == "a.py:3"


def test_an_author_s_comment_is_no_cell(tmp_path: Path) -> None:
    cell = [
        "# cell 9\n",
        "from transformers import BitsAndBytesConfig\n",
        "four = BitsAndBytesConfig(load_in_4bit=True)",
    ]
    text = json.dumps({"cells": [{"cell_type": "code", "source": cell}]})
    (found,) = audited(tmp_path, {"a.ipynb": text}, select=("PRC006",)).findings
    assert str(found.place) == "a.ipynb, cell 1, line 3"
