from datasets import load_dataset

HEADS = {"system": "<|system|>\n", "user": "<|user|>\n", "assistant": "<|assistant|>\n"}


def encode(messages, tokenizer, max_len):
    ids, labels = [], []
    if tokenizer.bos_token_id is not None:
        ids.append(tokenizer.bos_token_id)
        labels.append(-100)
    for m in messages:
        head_ids = tokenizer(HEADS[m["role"]], add_special_tokens=False)["input_ids"]
        body_ids = tokenizer(m["content"].strip(), add_special_tokens=False)["input_ids"]
        if m["role"] == "assistant":
            body_ids = body_ids + [tokenizer.eos_token_id]
            body_labels = list(body_ids)
        else:
            body_ids = body_ids + tokenizer("\n", add_special_tokens=False)["input_ids"]
            body_labels = [-100] * len(body_ids)
        ids += head_ids + body_ids
        labels += [-100] * len(head_ids) + body_labels
    ids, labels = ids[:max_len], labels[:max_len]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


def load_train(args, tokenizer):
    ds = load_dataset("json", data_files=args.train_file, split="train")
    if args.max_train_samples is not None:
        ds = ds.select(range(min(args.max_train_samples, len(ds))))
    ds = ds.map(
        lambda row: encode(row["messages"], tokenizer, args.max_seq_length),
        remove_columns=ds.column_names,
        num_proc=args.preprocessing_num_workers,
        desc="encode",
    )
    return ds.filter(lambda row: any(t != -100 for t in row["labels"]), num_proc=args.preprocessing_num_workers)
