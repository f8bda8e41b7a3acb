import argparse
import json

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

ap = argparse.ArgumentParser()
ap.add_argument("--model", required=True)
ap.add_argument("--prompts", required=True)
args = ap.parse_args()

tok = AutoTokenizer.from_pretrained(args.model)
model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16)
model.eval()

with open(args.prompts) as f:
    for line in f:
        chat = [{"role": "user", "content": json.loads(line)["prompt"]}]
        enc = tok.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        enc = enc.to(model.device)
        with torch.inference_mode():
            out = model.generate(**enc, max_new_tokens=256, do_sample=False)
        print(tok.decode(out[0, enc["input_ids"].size(1):], skip_special_tokens=True))
