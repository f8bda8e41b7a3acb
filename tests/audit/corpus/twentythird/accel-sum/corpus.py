from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq


def build_loader(accelerator, tok, model, data_dir, batch):
    raw = load_dataset("json", data_files=f"{data_dir}/train.jsonl", split="train")

    def encode(rows):
        enc = tok(["summarize: " + t for t in rows["article"]], truncation=True, max_length=512)
        enc["labels"] = tok(text_target=rows["summary"], truncation=True, max_length=128)["input_ids"]
        return enc

    with accelerator.main_process_first():
        ds = raw.map(encode, batched=True, remove_columns=raw.column_names)
    collator = DataCollatorForSeq2Seq(tok, model=model, pad_to_multiple_of=8)
    return DataLoader(ds, batch_size=batch, shuffle=True, collate_fn=collator, num_workers=4, pin_memory=True)
