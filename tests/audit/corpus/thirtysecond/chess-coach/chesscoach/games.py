"""Annotated games -> conversations."""
from datasets import load_dataset

SYSTEM = "You are a chess coach. Explain the key moment of the game to a club player."


def to_chat(row):
    return {
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"[{row['white_elo']} - {row['black_elo']}]\n{row['moves']}"},
            {"role": "assistant", "content": row["comment"]},
        ]
    }


def load(path, event_holdout):
    ds = load_dataset("json", data_files=path, split="train")
    held = set(event_holdout)
    cols = ds.column_names
    train = ds.filter(lambda r: r["event"] not in held)
    dev = ds.filter(lambda r: r["event"] in held)
    return train.map(to_chat, remove_columns=cols), dev.map(to_chat, remove_columns=cols)
