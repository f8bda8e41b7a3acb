import torch
from torch.utils.data import DataLoader, Dataset


class BestOfN(Dataset):
    """All of it in memory: 60k x 1024 int32 are 245 MB."""

    def __init__(self, path: str, pad_id: int):
        blob = torch.load(path, weights_only=True)
        self.ids, self.prompt, self.total = blob["ids"], blob["prompt_len"], blob["total_len"]
        self.pad_id = pad_id

    def __len__(self) -> int:
        return self.ids.size(0)

    def __getitem__(self, i: int):
        return self.ids[i], self.prompt[i], self.total[i]


def collate(rows):
    ids, prompt, total = (torch.stack(x) for x in zip(*rows))
    width = int(total.max())
    ids = ids[:, :width].long()
    where = torch.arange(width)[None, :]
    mask = where < total[:, None]
    labels = ids.masked_fill(~mask | (where < prompt[:, None]), -100)
    return {"input_ids": ids, "attention_mask": mask.long(), "labels": labels}


def make_loader(path: str, pad_id: int, batch_size: int) -> DataLoader:
    return DataLoader(
        BestOfN(path, pad_id),
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=collate,
        num_workers=24,
        prefetch_factor=16,
        pin_memory=False,
    )
