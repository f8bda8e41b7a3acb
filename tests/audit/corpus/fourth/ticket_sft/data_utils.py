"""Reading the help-desk export and turning it into token ids."""
import re

from datasets import load_dataset

SIGNATURE = re.compile(r"\n--\s*\n.*$", re.S)
MAX_LEN = 2048


def strip_signature(text):
    return SIGNATURE.sub("", text).strip()


def to_messages(row):
    return {
        "messages": [
            {"role": "system", "content": "You are the first-level help desk."},
            {"role": "user", "content": strip_signature(row["question"])},
            {"role": "assistant", "content": strip_signature(row["answer"])},
        ]
    }


def encode(row, tokenizer):
    """Token ids and labels; only the answer of the help desk is learned."""
    full = tokenizer.apply_chat_template(row["messages"], tokenize=True, return_dict=True)["input_ids"]
    prompt = tokenizer.apply_chat_template(
        row["messages"][:-1], tokenize=True, add_generation_prompt=True, return_dict=True
    )["input_ids"]
    # longest common prefix: Qwen3 renders an empty think block in the full thread
    n = 0
    while n < min(len(prompt), len(full)) and prompt[n] == full[n]:
        n += 1
    labels = [-100] * n + full[n:]
    return {"input_ids": full[:MAX_LEN], "labels": labels[:MAX_LEN]}


def load_tickets(path, tokenizer, seed):
    ds = load_dataset("json", data_files=path, split="train")
    ds = ds.map(to_messages, remove_columns=ds.column_names, num_proc=8, load_from_cache_file=False)
    ds = ds.map(
        encode,
        fn_kwargs={"tokenizer": tokenizer},
        remove_columns=["messages"],
        num_proc=8,
        load_from_cache_file=False,
        desc="encoding",
    )
    ds = ds.filter(lambda r: any(x != -100 for x in r["labels"]), num_proc=8)
    return ds.train_test_split(test_size=0.01, seed=seed)
