from datasets import load_dataset

TEMPLATE = "### Ticket:\n{ticket}\n\n### Reply:\n{reply}"


def load_tickets(path, tokenizer, max_length):
    ds = load_dataset("json", data_files=path, split="train")

    def encode(batch):
        texts = [
            TEMPLATE.format(ticket=t, reply=r) + tokenizer.eos_token
            for t, r in zip(batch["ticket"], batch["reply"])
        ]
        enc = tokenizer(
            texts,
            padding="max_length",
            truncation=True,
            max_length=max_length,
            return_tensors="pt",
        )
        enc["labels"] = enc["input_ids"].clone()
        return enc

    ds.set_transform(encode)
    return ds
