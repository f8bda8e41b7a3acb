import json
import sys

import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

path, test_file = sys.argv[1], sys.argv[2]
tokenizer = AutoTokenizer.from_pretrained(path)
model = AutoPeftModelForCausalLM.from_pretrained(path, torch_dtype=torch.bfloat16)
model.eval()

rows = [json.loads(line) for line in open(test_file)]
hits = 0
for row in rows:
    ids = tokenizer.apply_chat_template(
        row["messages"][:-1], add_generation_prompt=True, return_tensors="pt"
    ).to(model.device)
    with torch.no_grad():
        out = model.generate(input_ids=ids, max_new_tokens=8, do_sample=False)
    answer = tokenizer.decode(out[0, ids.shape[1]:], skip_special_tokens=True).strip()
    hits += answer == row["messages"][-1]["content"].strip()
print(f"accuracy {hits / len(rows):.3f}")
