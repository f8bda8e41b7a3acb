"""raw/*.txt -> data/{train,valid}.bin. One document per file, <|end|> after each; every 200th document is held out."""
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

tok = Tokenizer.from_file("data/bpe16k.json")
end = tok.token_to_id("<|end|>")
sinks = {"train": [], "valid": []}
for i, f in enumerate(sorted(Path("raw").glob("*.txt"))):
    sinks["valid" if i % 200 == 0 else "train"].append(
        np.array(tok.encode(f.read_text(encoding="utf-8")).ids + [end], dtype=np.uint16)
    )
for name, parts in sinks.items():
    np.concatenate(parts).tofile(f"data/{name}.bin")
    print(name, sum(map(len, parts)))
