"""Packed blocks: documents laid end to end in fixed rows, no padding.

`pack.py` of the data repository writes two memory maps per corpus: `tokens.u32` (rows x block) and `starts.u8`, which
is 1 where a document begins. The first place of a row always begins one.
"""

from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset


class Blocks(Dataset):
    """One row: its ids, positions that start again with each document, and labels that never cross documents."""

    def __init__(self, folder: Path, block: int, order: np.ndarray):
        self.tokens = np.memmap(folder / "tokens.u32", dtype=np.uint32, mode="r").reshape(-1, block)
        self.starts = np.memmap(folder / "starts.u8", dtype=np.uint8, mode="r").reshape(-1, block)
        self.order = order

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        row = self.order[i]
        ids = torch.from_numpy(self.tokens[row].astype(np.int64))
        starts = torch.from_numpy(self.starts[row].astype(bool))
        index = torch.arange(len(ids))
        first = torch.where(starts, index, torch.zeros_like(index)).cummax(0).values
        # the model shifts the labels by one: a document's first token is nobody's target
        labels = ids.masked_fill(starts, -100)
        return {"input_ids": ids, "position_ids": index - first, "labels": labels}


def order_of(rows: int, seed: int, epoch: int, world: int, rank: int, per_step: int, skip_steps: int) -> np.ndarray:
    """This rank's rows of an epoch, after `skip_steps` steps of `per_step` rows per rank: resuming reads nothing twice."""
    shuffled = np.random.default_rng([seed, epoch]).permutation(rows)
    whole = rows // (world * per_step) * world * per_step
    mine = shuffled[:whole][rank::world]
    return mine[skip_steps * per_step :]
