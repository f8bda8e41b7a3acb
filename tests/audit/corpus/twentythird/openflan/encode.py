def response_start(ids, marker):
    n = len(marker)
    for i in range(len(ids) - n + 1):
        if ids[i : i + n] == marker:
            return i + n
    return 0


def encode(row, tok, max_len):
    marker = tok("<|assistant|>\n", add_special_tokens=False)["input_ids"]
    text = f"<|user|>\n{row['prompt']}\n<|assistant|>\n{row['response']}{tok.eos_token}"
    ids = tok(text, add_special_tokens=False, truncation=True, max_length=max_len)["input_ids"]
    start = response_start(ids, marker)
    return {
        "input_ids": ids,
        "attention_mask": [1] * len(ids),
        "labels": [-100] * start + ids[start:],
    }
