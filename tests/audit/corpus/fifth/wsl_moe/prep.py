import sys

import tiktoken
import torch

enc = tiktoken.get_encoding("gpt2")
ids = []
for path in sys.argv[1:]:
    ids += enc.encode_ordinary(open(path, encoding="utf-8").read()) + [enc.eot_token]
torch.save(torch.tensor(ids, dtype=torch.int32).to(torch.uint16), "tokens.pt")
print(len(ids), "tokens")
