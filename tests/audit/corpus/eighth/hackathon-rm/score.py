"""echo '[{"role":"user","content":"hi"},{"role":"assistant","content":"hello"}]' | python score.py rm-out"""
import json
import sys

import torch
from peft import PeftModel
from transformers import AutoTokenizer

from modeling import RewardModel

path = sys.argv[1]
tok = AutoTokenizer.from_pretrained(path)
m = RewardModel("Qwen/Qwen3-4B")
m.backbone = PeftModel.from_pretrained(m.backbone, path)
head = torch.load(f"{path}/head.bin", weights_only=True)
m.head.load_state_dict(head["head"])
m.head.mean = head["mean"]
m.eval().cuda()
ids = tok.apply_chat_template(json.load(sys.stdin), return_tensors="pt", return_dict=True).to("cuda")
with torch.inference_mode():
    print(round(m(ids["input_ids"], ids["attention_mask"]).item(), 3))
