"""Writes one recipe with the trained adapter."""
import sys

import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

model = AutoPeftModelForCausalLM.from_pretrained("adapter", torch_dtype=torch.float16, device_map={"": 0})
tokenizer = AutoTokenizer.from_pretrained("adapter")
prompt = f"Ingredients: {sys.argv[1]}\nRecipe:"
batch = tokenizer(prompt, return_tensors="pt").to(0)
out = model.generate(**batch, max_new_tokens=200, do_sample=False)
print(tokenizer.decode(out[0], skip_special_tokens=True))
