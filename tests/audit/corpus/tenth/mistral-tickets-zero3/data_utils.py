from datasets import load_dataset

IGNORE_INDEX = -100
RESPONSE_MARKER = "### Response:"

PROMPT = (
    "Below is a customer ticket. Write the reply of the support agent.\n\n"
    "### Ticket:\n{ticket}\n\n### Response:\n"
)


def find_response_start(input_ids, marker_ids):
    n = len(marker_ids)
    for i in range(len(input_ids) - n, -1, -1):
        if input_ids[i : i + n] == marker_ids:
            return i + n
    return -1


def mask_prompt(labels, marker_ids):
    start = find_response_start(labels, marker_ids)
    if start == -1:
        return labels
    return [IGNORE_INDEX] * start + labels[start:]


def build_datasets(tokenizer, path, max_length, val_ratio=0.1, num_proc=8):
    marker_ids = tokenizer.encode(RESPONSE_MARKER, add_special_tokens=False)

    def tokenize(example):
        text = PROMPT.format(ticket=example["ticket"]) + example["reply"] + tokenizer.eos_token
        enc = tokenizer(
            text,
            max_length=max_length,
            truncation=True,
            padding="max_length",
        )
        labels = mask_prompt(list(enc["input_ids"]), marker_ids)
        labels = [t if m == 1 else IGNORE_INDEX for t, m in zip(labels, enc["attention_mask"])]
        return {
            "input_ids": enc["input_ids"],
            "attention_mask": enc["attention_mask"],
            "labels": labels,
        }

    raw = load_dataset("json", data_files=path, split="train")
    raw = raw.train_test_split(test_size=val_ratio, seed=42)
    tokenized = raw.map(
        tokenize,
        remove_columns=raw["train"].column_names,
        num_proc=num_proc,
        load_from_cache_file=False,
    )
    return tokenized["train"], tokenized["test"]
