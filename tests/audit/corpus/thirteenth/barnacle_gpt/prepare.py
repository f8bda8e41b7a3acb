import torch
from transformers import AutoTokenizer

from config import DATA_PT, DATA_TXT, SEQ_LEN, TOKENIZER


def main():
    tok = AutoTokenizer.from_pretrained(TOKENIZER)
    ids = []
    with open(DATA_TXT, encoding="utf-8") as f:
        for doc in f.read().split("\n\n"):
            ids.extend(tok(doc)["input_ids"])
            ids.append(tok.eos_token_id)
    n = (len(ids) // SEQ_LEN) * SEQ_LEN
    torch.save(torch.tensor(ids[:n], dtype=torch.int32).view(-1, SEQ_LEN), DATA_PT)
    print(f"{n / 1e6:.1f}M tokens in {DATA_PT}")


if __name__ == "__main__":
    main()
