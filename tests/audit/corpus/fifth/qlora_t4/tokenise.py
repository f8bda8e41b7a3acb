"""Run once; train.py only reads the result."""
from datasets import load_dataset
from transformers import AutoTokenizer

import common as C


def main():
    tok = AutoTokenizer.from_pretrained(C.MODEL)

    def enc(r):
        msgs = [{"role": "user", "content": r["clause"]}]
        head = tok.apply_chat_template(msgs, tokenize=False, add_generation_prompt=True)
        x = tok(head, add_special_tokens=False)["input_ids"]
        y = tok(r["plain"] + tok.eos_token, add_special_tokens=False)["input_ids"]
        ids = x + y
        return {"input_ids": ids, "labels": [-100] * len(x) + y, "length": len(ids)}

    ds = load_dataset("json", data_files=C.RAW, split="train")
    ds = ds.map(enc, remove_columns=ds.column_names, num_proc=4)
    ds = ds.filter(lambda r: r["length"] <= C.MAX_LEN)
    ds.train_test_split(test_size=100, seed=C.SEED).save_to_disk(C.TOK)


if __name__ == "__main__":
    main()
