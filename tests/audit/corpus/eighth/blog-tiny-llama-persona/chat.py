import sys

import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

from prepare import PERSONA

path = sys.argv[1]
tok = AutoTokenizer.from_pretrained(path)
model = AutoPeftModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16, device_map="auto")
messages = [{"role": "system", "content": PERSONA}]
while True:
    try:
        messages.append({"role": "user", "content": input("you> ")})
    except EOFError:
        break
    ids = tok.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt").to(model.device)
    out = model.generate(ids, max_new_tokens=120, do_sample=True, temperature=0.8)
    answer = tok.decode(out[0, ids.shape[1]:], skip_special_tokens=True)
    print("hannes>", answer)
    messages.append({"role": "assistant", "content": answer})
