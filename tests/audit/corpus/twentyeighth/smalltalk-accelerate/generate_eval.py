"""Answer the ~2000 eval prompts with the trained model on the GPU and write them to answers.txt."""
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(model_dir, prompt_file):
    tok = AutoTokenizer.from_pretrained(model_dir, padding_side="left")
    if tok.pad_token is None:
        tok.pad_token = tok.eos_token
    model = AutoModelForCausalLM.from_pretrained(model_dir, torch_dtype=torch.bfloat16)
    model.eval()

    prompts = [f"User: {line.strip()}\nBot:" for line in open(prompt_file, encoding="utf-8")]
    with open("answers.txt", "w", encoding="utf-8") as out, torch.inference_mode():
        for i in range(0, len(prompts), 32):
            enc = tok(prompts[i:i + 32], return_tensors="pt", padding=True).to(model.device)
            gen = model.generate(**enc, max_new_tokens=96, do_sample=False)
            for row in gen[:, enc["input_ids"].shape[1]:]:
                out.write(tok.decode(row, skip_special_tokens=True).replace("\n", " ") + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
