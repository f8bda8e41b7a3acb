"""Length statistics of the rendered conversations, to choose max_length."""
import json
import statistics
import sys

from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained(sys.argv[1])
n = []
for line in open(sys.argv[2], encoding="utf-8"):
    r = json.loads(line)
    n.append(len(tok(r["transcript"])["input_ids"]) + len(tok(r["minutes"])["input_ids"]))
print(f"{len(n)} rows, median {statistics.median(n)}, max {max(n)}")
