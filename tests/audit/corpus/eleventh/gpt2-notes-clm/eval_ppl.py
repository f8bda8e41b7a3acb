"""Perplexity of a trained model on a file of notes."""
import argparse
import json
import math

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


@torch.no_grad()
def perplexity(model, tokenizer, texts):
    total, count = 0.0, 0
    for text in texts:
        enc = tokenizer(text + tokenizer.eos_token, return_tensors="pt")
        out = model(input_ids=enc["input_ids"], labels=enc["input_ids"])
        n = enc["input_ids"].size(1) - 1
        total += out.loss.item() * n
        count += n
    return math.exp(total / count)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--file", required=True)
    args = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model)
    model.eval()
    with open(args.file) as fh:
        texts = [json.loads(line)["text"] for line in fh]
    print(f"perplexity {perplexity(model, tokenizer, texts):.2f}")


if __name__ == "__main__":
    main()
