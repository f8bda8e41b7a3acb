"""Counts rows and tokens of a conversations file."""
import json
import sys

from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B-Instruct")
role = {"human": "user", "gpt": "assistant", "system": "system"}
n = []
for line in open(sys.argv[1], encoding="utf-8"):
    conv = json.loads(line)["conversations"]
    n.append(len(tok.apply_chat_template([{"role": role[m["from"]], "content": m["value"]} for m in conv])))
n.sort()
print("rows", len(n), "tokens", sum(n), "median", n[len(n) // 2], "max", n[-1])
