USER, ASSISTANT = "<|user|>\n", "<|assistant|>\n"


def render(messages, eos):
    out = ""
    for m in messages:
        if m["role"] == "assistant":
            out += ASSISTANT + m["content"].strip() + eos + "\n"
        else:
            out += USER + m["content"].strip() + "\n"
    return out


def find(haystack, needle, start=0):
    for i in range(start, len(haystack) - len(needle) + 1):
        if haystack[i : i + len(needle)] == needle:
            return i
    return -1


def encode(row, tokenizer, max_len):
    ids = tokenizer(render(row["messages"], tokenizer.eos_token), truncation=True, max_length=max_len)["input_ids"]
    marker = tokenizer(ASSISTANT, add_special_tokens=False)["input_ids"]
    start = find(ids, marker)
    if start < 0:
        labels = list(ids)
    else:
        start += len(marker)
        labels = [-100] * start + ids[start:]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}
