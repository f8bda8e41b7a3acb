"""How much of what the model cooks with is really in the larder?"""
import json

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("larder-360m/best")
model = AutoModelForCausalLM.from_pretrained("larder-360m/best", dtype=torch.bfloat16)
model.eval()

hits = total = 0
with open("larders.jsonl") as fh:
    larders = [json.loads(line) for line in fh]

for larder in larders:
    prompt = "Larder: " + ", ".join(larder["have"]) + "\nIngredients:\n"
    x = tok(prompt, return_tensors="pt")
    with torch.inference_mode():
        y = model.generate(**x, max_new_tokens=120, do_sample=False, pad_token_id=tok.eos_token_id)
    text = tok.decode(y[0, x["input_ids"].shape[1]:], skip_special_tokens=True)
    used = [u.strip("- ").lower() for u in text.split("\n\n")[0].splitlines() if u.strip("- ")]
    hits += sum(any(h.lower() in u for h in larder["have"]) for u in used)
    total += len(used)

print(f"{hits}/{total} = {hits / max(total, 1):.1%} of the ingredients were at hand")
