from datasets import load_dataset


def build(args, tokenizer):
    def encode(row):
        head = row["messages"][:-1]
        prompt = tokenizer.apply_chat_template(head, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        answer = tokenizer(row["messages"][-1]["content"] + tokenizer.eos_token, add_special_tokens=False)["input_ids"]
        return {"input_ids": ids + answer, "labels": [-100] * len(ids) + answer}

    raw = load_dataset("json", data_files=args.train_file, split="train")
    rows = raw.map(encode, num_proc=args.num_proc, remove_columns=raw.column_names)
    return rows.filter(lambda r: len(r["input_ids"]) <= args.max_len, num_proc=args.num_proc)
