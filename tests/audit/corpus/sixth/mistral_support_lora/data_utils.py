from datasets import load_dataset

# Mistral's instruct format. The tokenizer puts <s> in front by itself.
PROMPT = "[INST] {question} [/INST] "


def build_datasets(path, tokenizer, eval_fraction):
    ds = load_dataset("json", data_files=path, split="train")

    def to_text(row):
        return {"text": PROMPT.format(question=row["question"].strip()) + row["answer"].strip() + tokenizer.eos_token}

    ds = ds.map(to_text, remove_columns=ds.column_names)
    split = ds.train_test_split(test_size=eval_fraction, seed=13)
    return split["train"], split["test"]
