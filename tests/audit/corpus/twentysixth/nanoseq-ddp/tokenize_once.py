import sys

import torch

ALPHABET = "ACDEFGHIKLMNPQRSTVWYX"
PAD, BOS, EOS = 0, 1, 2
TABLE = {c: i + 3 for i, c in enumerate(ALPHABET)}


def encode(line):
    return [BOS] + [TABLE.get(c, TABLE["X"]) for c in line.strip()] + [EOS]


if __name__ == "__main__":
    src, dst = sys.argv[1:3]
    with open(src) as f:
        seqs = [torch.tensor(encode(x)[:1024], dtype=torch.uint8) for x in f if x.strip()]
    torch.save(seqs, dst)
    print(len(seqs), "sequences")
