import argparse

import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

p = argparse.ArgumentParser()
p.add_argument("--adapter", required=True)
p.add_argument("--out", required=True)
a = p.parse_args()

model = AutoPeftModelForCausalLM.from_pretrained(a.adapter, dtype=torch.bfloat16, device_map="auto")
model.merge_and_unload().save_pretrained(a.out)
AutoTokenizer.from_pretrained(a.adapter).save_pretrained(a.out)
