RESPONSE_MARKER = "<|start_header_id|>assistant<|end_header_id|>\n\n"


def find_last(sequence, pattern):
    for start in range(len(sequence) - len(pattern), -1, -1):
        if sequence[start : start + len(pattern)] == pattern:
            return start + len(pattern)
    return None


def encode_chat(example, tokenizer, max_seq_length):
    text = tokenizer.apply_chat_template(example["messages"], tokenize=False)
    input_ids = tokenizer(text, truncation=True, max_length=max_seq_length)["input_ids"]
    marker = tokenizer(RESPONSE_MARKER, add_special_tokens=False)["input_ids"]

    labels = list(input_ids)
    start = find_last(input_ids, marker)
    if start is not None:
        labels[:start] = [-100] * start
    return {"input_ids": input_ids, "attention_mask": [1] * len(input_ids), "labels": labels}
