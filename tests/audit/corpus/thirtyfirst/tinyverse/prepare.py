"""data/raw/*.txt -> data/verse_u16.npy, poems separated by <eot>."""
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

tok = Tokenizer.from_file("data/verse-bpe-8k.json")
eot = tok.token_to_id("<eot>")
out = []
for f in sorted(Path("data/raw").glob("*.txt")):
    for poem in f.read_text(encoding="utf-8").split("\n***\n"):
        out.extend(tok.encode(poem.strip()).ids)
        out.append(eot)
np.save("data/verse_u16.npy", np.array(out, dtype=np.uint16))
print(len(out), "tokens")
