import json

import torch


def blocks(path, tokenizer, seq, limit):
    """Queries joined by EOS and cut into full blocks of seq tokens."""
    buffer, out = [], []
    with open(path, encoding="utf-8") as f:
        for line in f:
            buffer += tokenizer(json.loads(line)["sql"])["input_ids"] + [tokenizer.eos_token_id]
            while len(buffer) >= seq:
                out.append(buffer[:seq])
                buffer = buffer[seq:]
                if len(out) == limit:
                    return torch.tensor(out)
    raise SystemExit(f"{path} has only {len(out)} blocks of {seq}")
