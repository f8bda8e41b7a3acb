import sys

from datasets import Dataset
from transformers import AutoTokenizer

LEN = 2048
tok = AutoTokenizer.from_pretrained("TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T")


def blocks(files):
    buf = []
    for name in files:
        with open(name, encoding="utf-8") as f:
            buf += tok(f.read())["input_ids"] + [tok.eos_token_id]
        while len(buf) >= LEN:
            yield {"input_ids": buf[:LEN]}
            buf = buf[LEN:]


if __name__ == "__main__":
    *files, dst = sys.argv[1:]
    Dataset.from_generator(blocks, gen_kwargs={"files": files}).save_to_disk(dst)
