import argparse
import json

from transformers import AutoTokenizer

parser = argparse.ArgumentParser()
parser.add_argument("--raw", required=True)
parser.add_argument("--out", required=True)
args = parser.parse_args()

tok = AutoTokenizer.from_pretrained("openai-community/gpt2")
with open(args.raw) as src, open(args.out, "w") as dst:
    for line in src:
        ids = tok(json.loads(line)["story"])["input_ids"][:1023]
        dst.write(json.dumps(ids + [tok.eos_token_id]) + "\n")
