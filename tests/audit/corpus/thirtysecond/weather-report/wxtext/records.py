import json
from pathlib import Path

from torch.utils.data import Dataset

from .render import to_ids


class BulletinSet(Dataset):
    """One JSON file per bulletin (station grid + the text the forecaster wrote), 180k files on NVMe."""

    def __init__(self, folder, tok, max_len):
        self.files = sorted(Path(folder).glob("*/*.json"))
        self.tok, self.max_len = tok, max_len

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with open(self.files[i], encoding="utf-8") as f:
            rec = json.load(f)
        return to_ids(rec, self.tok, self.max_len)
