from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq


def build_loader(cfg, tokenizer, model):
    raw = load_dataset("json", data_files=cfg.train_file, split="train")

    def encode(batch):
        src = ["summarize: " + t for t in batch["notes"]]
        enc = tokenizer(src, truncation=True, max_length=cfg.max_source)
        enc["labels"] = tokenizer(
            text_target=batch["summary"], truncation=True, max_length=cfg.max_target
        )["input_ids"]
        return enc

    ds = raw.map(encode, batched=True, num_proc=8, remove_columns=raw.column_names)
    collate = DataCollatorForSeq2Seq(tokenizer, model=model, pad_to_multiple_of=8)
    return DataLoader(
        ds, batch_size=cfg.batch_size, shuffle=True, collate_fn=collate, num_workers=2, pin_memory=True
    )
