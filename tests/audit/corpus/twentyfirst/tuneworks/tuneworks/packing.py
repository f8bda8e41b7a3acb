from itertools import chain


def tokenize_rows(batch, tokenizer):
    out = []
    for prompt, answer in zip(batch["prompt"], batch["answer"]):
        text = f"<|user|>\n{prompt}\n<|assistant|>\n{answer}{tokenizer.eos_token}"
        out.append(tokenizer(text, add_special_tokens=False)["input_ids"])
    return {"input_ids": out}


def pack_rows(batch, block):
    stream = list(chain.from_iterable(batch["input_ids"]))
    usable = len(stream) // block * block
    return {"input_ids": [stream[i : i + block] for i in range(0, usable, block)]}
