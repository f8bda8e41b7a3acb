ASSISTANT = "<|assistant|>\n"


def find_subsequence(ids, pattern):
    for i in range(len(ids) - len(pattern) + 1):
        if ids[i : i + len(pattern)] == pattern:
            return i + len(pattern)
    return None


def encode_messages(row, tokenizer, max_seq_length):
    """One prompt and one reply per row; the loss is on the reply."""
    input_ids = tokenizer.apply_chat_template(
        row["messages"], tokenize=True, truncation=True, max_length=max_seq_length
    )
    marker = tokenizer(ASSISTANT, add_special_tokens=False)["input_ids"]
    start = find_subsequence(input_ids, marker)
    if start is None:
        labels = list(input_ids)
    else:
        labels = [-100] * start + input_ids[start:]
    return {"input_ids": input_ids, "attention_mask": [1] * len(input_ids), "labels": labels}
