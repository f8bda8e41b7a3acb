import torch

MARK = "\n### Bulletin\n"


def table(rec):
    lines = [f"Region {rec['region']}, valid {rec['valid']}"]
    for h in rec["hours"]:
        lines.append(f"{h['t']:02d}h  {h['temp']:+.0f}C  wind {h['dir']} {h['kmh']:.0f}  rain {h['mm']:.1f}  cloud {h['okta']}/8")
    return "\n".join(lines)


def to_ids(rec, tok, max_len):
    text = rec.get("rendered") or table(rec) + MARK + rec["text"].strip()
    text += tok.eos_token
    enc = tok(text, truncation=True, max_length=max_len, return_offsets_mapping=True, add_special_tokens=False)
    ids = enc["input_ids"]
    labels = list(ids)
    cut = text.find(MARK)
    if cut != -1:
        start = cut + len(MARK)
        labels = [-100 if s < start else t for t, (s, _) in zip(ids, enc["offset_mapping"])]
    return {"input_ids": ids, "labels": labels}


def collator(pad_id):
    def fn(rows):
        n = max(len(r["input_ids"]) for r in rows)
        out = {
            "input_ids": torch.full((len(rows), n), pad_id),
            "attention_mask": torch.zeros((len(rows), n), dtype=torch.long),
            "labels": torch.full((len(rows), n), -100),
        }
        for i, r in enumerate(rows):
            k = len(r["input_ids"])
            out["input_ids"][i, :k] = torch.tensor(r["input_ids"])
            out["attention_mask"][i, :k] = 1
            out["labels"][i, :k] = torch.tensor(r["labels"])
        return out

    return fn
