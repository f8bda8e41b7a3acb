from datasets import load_dataset


def load_train_set(path, tokenizer, max_length):
    dataset = load_dataset("json", data_files=path, split="train")

    def encode(batch):
        out = {"input_ids": [], "attention_mask": [], "labels": []}
        for prompt, completion in zip(batch["prompt"], batch["completion"]):
            p = tokenizer(prompt, add_special_tokens=False)["input_ids"]
            c = tokenizer(completion, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
            ids = (p + c)[:max_length]
            out["input_ids"].append(ids)
            out["attention_mask"].append([1] * len(ids))
            out["labels"].append(([-100] * len(p) + c)[:max_length])
        return out

    dataset.set_transform(encode)
    return dataset
