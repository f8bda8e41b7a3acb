"""Messages -> ids and labels, in the <|user|> / <|assistant|> format of Tulu."""


def add_special(tok, model):
    if tok.pad_token is None:
        tok.add_special_tokens({"pad_token": "<pad>"})
        model.resize_token_embeddings(len(tok))


def render(messages, tok):
    text = ""
    for m in messages:
        if m["role"] == "assistant":
            text += "<|assistant|>\n" + m["content"].strip() + tok.eos_token + "\n"
        else:
            text += f"<|{m['role']}|>\n" + m["content"].strip() + "\n"
    return text


def _len(text, tok, max_len):
    return len(tok(text, truncation=True, max_length=max_len)["input_ids"])


def encode_messages(row, tok, max_len):
    messages = row["messages"]
    ids = tok(render(messages, tok), truncation=True, max_length=max_len)["input_ids"]
    labels = [-100] * len(ids)
    for i, m in enumerate(messages):
        if m["role"] != "assistant":
            continue
        head = render(messages[:i], tok) + "<|assistant|>\n"
        lo = _len(head, tok, max_len)
        hi = _len(head + m["content"].strip(), tok, max_len)
        labels[lo:hi] = ids[lo:hi]
        if hi >= max_len:
            break
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}
