"""Perplexity of an adapter on held-out questions and answers."""
import argparse
import math

import torch
from datasets import load_dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="mistralai/Mistral-7B-v0.3")
    parser.add_argument("--adapter", required=True)
    parser.add_argument("--eval_file", required=True)
    parser.add_argument("--max_length", type=int, default=2048)
    args = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
    model = PeftModel.from_pretrained(model, args.adapter)
    model.eval()

    data = load_dataset("json", data_files=args.eval_file, split="train")
    losses = []
    with torch.inference_mode():
        for row in data:
            text = f"[INST] {row['question']} [/INST] {row['answer']}{tokenizer.eos_token}"
            inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=args.max_length)
            out = model(**inputs, labels=inputs["input_ids"])
            losses.append(out.loss)
    print("perplexity:", math.exp(torch.stack(losses).float().mean().item()))


if __name__ == "__main__":
    main()
