from datasets import load_dataset

import settings as S

PROMPT = "### Ticket\n{subject}\n{body}\n\n### Reply\n"


def encode(row, tok):
    prompt_ids = tok(PROMPT.format(**row), add_special_tokens=False)["input_ids"]
    reply_ids = tok(row["reply"], add_special_tokens=False)["input_ids"] + [tok.eos_token_id]
    ids = (prompt_ids + reply_ids)[: S.MAX_LEN]
    labels = ([-100] * len(prompt_ids) + reply_ids)[: S.MAX_LEN]

    room = S.MAX_LEN - len(ids)
    return {
        "input_ids": ids + [tok.pad_token_id] * room,
        "attention_mask": [1] * len(ids) + [0] * room,
        "labels": labels + [-100] * room,
    }


def build(tok):
    raw = load_dataset("json", data_files={"train": S.TRAIN_FILE, "dev": S.DEV_FILE})
    # we got burnt once by a stale arrow file after editing PROMPT
    return raw.map(
        encode,
        fn_kwargs={"tok": tok},
        remove_columns=raw["train"].column_names,
        load_from_cache_file=False,
        desc="encode",
    )
