"""Tokenizes once and writes rows of seq_len tokens; documents are separated by EOS."""
import yaml
from datasets import load_dataset
from transformers import AutoTokenizer


def main():
    with open("config.yaml") as fh:
        cfg = yaml.safe_load(fh)
    tok = AutoTokenizer.from_pretrained(cfg["tokenizer"])
    n = cfg["seq_len"]

    def encode(batch):
        return {"input_ids": tok([t + tok.eos_token for t in batch["text"]])["input_ids"]}

    def chunk(batch):
        flat = [i for ids in batch["input_ids"] for i in ids]
        total = len(flat) // n * n
        return {"input_ids": [flat[i : i + n] for i in range(0, total, n)]}

    ds = load_dataset("northfield/tiny-tales", split="train")
    ds = ds.map(encode, batched=True, num_proc=8, remove_columns=ds.column_names)
    ds = ds.map(chunk, batched=True, num_proc=8, batch_size=2000)
    ds.save_to_disk(cfg["data_dir"])


if __name__ == "__main__":
    main()
