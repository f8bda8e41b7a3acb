ASSISTANT = "<|start_header_id|>assistant<|end_header_id|>\n\n"
END = "<|eot_id|>"


def find(ids, pattern, start=0):
    n = len(pattern)
    for i in range(start, len(ids) - n + 1):
        if ids[i : i + n] == pattern:
            return i
    return -1


def encode_example(example, tokenizer, max_seq_length):
    """Token ids of a conversation, with the loss on the assistant's turns only."""
    text = tokenizer.apply_chat_template(example["messages"], tokenize=False)
    ids = tokenizer(text, truncation=True, max_length=max_seq_length)["input_ids"]

    opening = tokenizer(ASSISTANT, add_special_tokens=False)["input_ids"]
    closing = tokenizer(END, add_special_tokens=False)["input_ids"]
    if find(ids, opening) < 0:
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": list(ids)}

    labels = [-100] * len(ids)
    at = find(ids, opening)
    while at >= 0:
        begin = at + len(opening)
        stop = find(ids, closing, begin)
        stop = len(ids) if stop < 0 else stop + len(closing)
        labels[begin:stop] = ids[begin:stop]
        at = find(ids, opening, stop)
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}
