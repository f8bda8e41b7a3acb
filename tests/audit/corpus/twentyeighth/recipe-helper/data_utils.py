from datasets import load_dataset

PROMPT = "### Question:\n{question}\n\n### Answer:\n"


def find_sub(ids, pattern):
    n = len(pattern)
    for i in range(len(ids) - n + 1):
        if ids[i:i + n] == pattern:
            return i
    return -1


def build_dataset(path, tokenizer, max_len, num_proc=2):
    marker = tokenizer("### Answer:\n", add_special_tokens=False)["input_ids"]

    def encode(ex):
        text = PROMPT.format(question=ex["question"]) + ex["answer"] + tokenizer.eos_token
        enc = tokenizer(
            text,
            truncation=True,
            max_length=max_len,
            padding="max_length",
        )
        labels = list(enc["input_ids"])
        start = find_sub(enc["input_ids"], marker)
        if start != -1:
            end = start + len(marker)
            labels[:end] = [-100] * end
        enc["labels"] = labels
        return enc

    ds = load_dataset("json", data_files=path, split="train")
    ds = ds.map(encode, remove_columns=ds.column_names, num_proc=num_proc)
    return ds.train_test_split(test_size=0.02, seed=42)
