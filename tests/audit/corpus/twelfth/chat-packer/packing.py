import torch


def encode(row, tokenizer, max_len):
    ids = tokenizer.apply_chat_template(row["messages"], tokenize=True)[:max_len]
    return {"input_ids": ids, "labels": list(ids)}


def pack(rows, max_len):
    """Greedy packing: whole chats, in order, into rows of at most max_len tokens."""
    packed, current = [], []
    used = 0
    for row in rows:
        n = len(row["input_ids"])
        if current and used + n > max_len:
            packed.append(current)
            current, used = [], 0
        current.append({"input_ids": row["input_ids"], "labels": row["labels"]})
        used += n
    if current:
        packed.append(current)
    return packed


class PackedCollator:
    def __init__(self, pad_id, max_len):
        self.pad_id = pad_id
        self.max_len = max_len

    def __call__(self, batch):
        b, n = len(batch), self.max_len
        input_ids = torch.full((b, n), self.pad_id)
        labels = torch.full((b, n), -100)
        position_ids = torch.zeros((b, n), dtype=torch.long)
        segment = torch.zeros((b, n), dtype=torch.long)
        for i, chats in enumerate(batch):
            at = 0
            for k, chat in enumerate(chats, start=1):
                end = at + len(chat["input_ids"])
                input_ids[i, at:end] = torch.tensor(chat["input_ids"])
                labels[i, at + 1 : end] = torch.tensor(chat["labels"][1:])
                position_ids[i, at:end] = torch.arange(end - at)
                segment[i, at:end] = k
                at = end
        causal = torch.ones(n, n, dtype=torch.bool).tril()
        allowed = (segment[:, :, None] == segment[:, None, :]) & causal
        mask = torch.zeros(b, 1, n, n).masked_fill_(~allowed[:, None], torch.finfo(torch.float32).min)
        return {
            "input_ids": input_ids,
            "labels": labels,
            "position_ids": position_ids,
            "attention_mask": mask,
        }
