"""Promise: a file that the project downloads and unpickles whole is found, by whatever it is fetched and read; a file of the
project's own, or one that is read as tensors alone, is not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

HUB = 'path = hf_hub_download("lab/warm", "warm.bin")'
URL = 'urllib.request.urlretrieve("https://example.org/w.pt", path)'
HEAD = """import pickle
import urllib.request
import numpy as np
import torch
from huggingface_hub import hf_hub_download
path = "warm.pt"
"""
REST = """
model.load_state_dict(state["model"])
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
"""
CURL = "curl -L -o warm.pt https://files.example.org/warm.pt\n"


def says(tmp_path: Path, files: dict[str, str]) -> bool:
    return any(one.code == "CKP053" and "unpickles" in one.message for one in audited(tmp_path, files).findings)


@pytest.mark.parametrize(
    ("body", "shell", "pin", "runs_code"),
    [
        (f"{HUB}\nstate = torch.load(path, weights_only=False)", "", "2.8.0", True),
        (f"{HUB}\nstate = torch.load(path, map_location='cpu')", "", "2.1.2", True),
        (f"{URL}\nstate = torch.load(path, weights_only=False)", "", "2.8.0", True),
        (f"{URL}\nstate = np.load(path, allow_pickle=True)", "", "2.8.0", True),
        (f"{HUB}\nwith open(path, 'rb') as f:\n    state = pickle.load(f)", "", "2.8.0", True),
        ('state = torch.load("warm.pt", weights_only=False)', CURL, "2.8.0", True),
        ('state = torch.load("w/warm.pt", weights_only=False)', "wget -P w https://a.org/warm.pt\n", "2.8.0", True),
        (f"{HUB}\nstate = torch.load(path, map_location='cpu')", "", "2.6.0", False),
        (f"{HUB}\nstate = torch.load(path, weights_only=True)", "", "2.1.2", False),
        (f"{URL}\nstate = np.load(path)", "", "2.8.0", False),
        ('state = torch.load("mine.pt", weights_only=False)', CURL, "2.8.0", False),
        ('state = torch.load("warm.pt", weights_only=False)', "python make_warm.py warm.pt\n", "2.8.0", False),
    ],
)
def test_a_file_from_elsewhere(tmp_path: Path, body: str, shell: str, pin: str, runs_code: bool) -> None:
    files = {
        "train.py": HEAD + body + REST,
        "run.sh": f"{shell}python train.py\n",
        "requirements.txt": f"torch=={pin}\n",
    }
    assert says(tmp_path, files) is runs_code
