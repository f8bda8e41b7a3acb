import json
import random

import torch

from distil import settings as S


def load(tok):
    rows = []
    for line in open(S.DATA, encoding="utf-8"):
        msgs = json.loads(line)["messages"]
        head = tok.apply_chat_template(msgs[:-1], tokenize=False, add_generation_prompt=True)
        x = tok(head, add_special_tokens=False)["input_ids"]
        y = tok(msgs[-1]["content"] + tok.eos_token, add_special_tokens=False)["input_ids"]
        rows.append(((x + y)[: S.ROW], ([-100] * len(x) + y)[: S.ROW]))
    return rows


def pack(rows):
    random.shuffle(rows)
    out, cur, used = [], [], 0
    for r in rows:
        if used + len(r[0]) > S.ROW:
            out.append(cur)
            cur, used = [], 0
        cur.append(r)
        used += len(r[0])
    return out + [cur]


def collate(batch, pad_id):
    b = len(batch)
    ids = torch.full((b, S.ROW), pad_id)
    labels = torch.full((b, S.ROW), -100)
    pos = torch.zeros(b, S.ROW, dtype=torch.long)
    doc = torch.full((b, S.ROW), -1)
    for i, row in enumerate(batch):
        k = 0
        for d, (x, y) in enumerate(row):
            n = len(x)
            ids[i, k : k + n] = torch.tensor(x)
            labels[i, k : k + n] = torch.tensor(y)
            pos[i, k : k + n] = torch.arange(n)
            doc[i, k : k + n] = d
            k += n
    causal = torch.ones(S.ROW, S.ROW, dtype=torch.bool).tril()
    mask = (doc[:, :, None] == doc[:, None, :]) & causal
    return {"input_ids": ids, "position_ids": pos, "attention_mask": mask[:, None], "labels": labels}
