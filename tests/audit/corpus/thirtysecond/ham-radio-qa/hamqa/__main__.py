"""python -m hamqa pools/ --out model-73"""
import argparse

from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

from .data import Collate, PoolSet, split
from .loop import fit, make_loaders

BASE = "HuggingFaceTB/SmolLM2-360M"

p = argparse.ArgumentParser(prog="hamqa")
p.add_argument("pools")
p.add_argument("--out", default="model-73")
p.add_argument("--batch", type=int, default=2)
p.add_argument("--epochs", type=int, default=4)
p.add_argument("--lr", type=float, default=2e-5)
p.add_argument("--max-len", type=int, default=256)
a = p.parse_args()

set_seed(73)
tok = AutoTokenizer.from_pretrained(BASE)
tok.pad_token = tok.eos_token
model = AutoModelForCausalLM.from_pretrained(BASE, dtype="float32")
model.config.pad_token_id = tok.pad_token_id

tr, dv = split(a.pools)
print(len(tr), "train /", len(dv), "dev")
c = Collate(tok)
train_dl, dev_dl = make_loaders(PoolSet(tr, tok, a.max_len), PoolSet(dv, tok, a.max_len), c, a.batch)
fit(model, train_dl, dev_dl, a.epochs, a.lr)
model.save_pretrained(a.out)
tok.save_pretrained(a.out)
