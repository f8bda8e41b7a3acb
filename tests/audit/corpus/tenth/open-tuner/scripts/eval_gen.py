"""Generate answers of the merged model for the evaluation prompts."""
import argparse
import json

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--prompts", required=True)
    p.add_argument("--out", default="generations.jsonl")
    args = p.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
    model.eval()

    with open(args.prompts) as f, open(args.out, "w") as out:
        for line in f:
            prompt = json.loads(line)["prompt"]
            ids = tokenizer.apply_chat_template(
                [{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt"
            )
            with torch.no_grad():
                gen = model.generate(ids, max_new_tokens=512, do_sample=False)
            text = tokenizer.decode(gen[0, ids.shape[1]:], skip_special_tokens=True)
            out.write(json.dumps({"prompt": prompt, "output": text}) + "\n")


if __name__ == "__main__":
    main()
