import argparse

import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

parser = argparse.ArgumentParser()
parser.add_argument("--adapter", default="runs/basalt-sft")
parser.add_argument("--out", default="runs/basalt-sft-merged")
args = parser.parse_args()

model = AutoPeftModelForCausalLM.from_pretrained(args.adapter, dtype=torch.bfloat16)
model.merge_and_unload().save_pretrained(args.out)
AutoTokenizer.from_pretrained(args.adapter).save_pretrained(args.out)
