"""Reads a report when it is asked for; the folder is on a network disk and changes daily."""
import csv
import pathlib

from torch.utils.data import Dataset

HEAD = "Shift report:\n"
MID = "\n\nSummary:\n"


class Reports(Dataset):
    def __init__(self, folder, summaries, tok, limit=1536):
        self.folder = pathlib.Path(folder)
        with open(summaries, newline="", encoding="utf-8") as fh:
            self.rows = [(r["file"], r["summary"]) for r in csv.DictReader(fh)]
        self.tok, self.limit = tok, limit

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        name, summary = self.rows[i]
        report = (self.folder / name).read_text(encoding="utf-8", errors="replace")
        s = self.tok(MID + summary.strip(), add_special_tokens=False)["input_ids"]
        s.append(self.tok.eos_token_id)
        r = self.tok(HEAD + report, add_special_tokens=False)["input_ids"]
        r = r[: self.limit - len(s)]
        return {"input_ids": r + s, "labels": [-100] * len(r) + s,
                "attention_mask": [1] * (len(r) + len(s))}
