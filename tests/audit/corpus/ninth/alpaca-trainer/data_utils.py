from datasets import load_dataset

PROMPT_INPUT = (
    "Below is an instruction that describes a task, paired with an input that provides further context. "
    "Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n"
)
PROMPT_NO_INPUT = (
    "Below is an instruction that describes a task. "
    "Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Response:\n"
)


def format_row(row):
    template = PROMPT_INPUT if row.get("input") else PROMPT_NO_INPUT
    return template.format(**row) + row["output"]


def get_datasets(path, tokenizer, cutoff_len, val_fraction, seed):
    raw = load_dataset("json", data_files=path, split="train")
    split = raw.train_test_split(test_size=val_fraction, seed=seed)

    def tokenize(row):
        return tokenizer(
            format_row(row) + tokenizer.eos_token,
            truncation=True,
            max_length=cutoff_len,
            padding="max_length",
        )

    columns = raw.column_names
    tokenized = split.map(tokenize, remove_columns=columns, num_proc=4, load_from_cache_file=False)
    return tokenized["train"], tokenized["test"]
