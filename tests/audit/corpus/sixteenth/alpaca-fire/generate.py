import fire
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from prompter import build_prompt


def main(instruction: str, base_model: str = "meta-llama/Llama-3.2-3B", lora: str = "./lora-alpaca"):
    tok = AutoTokenizer.from_pretrained(lora)
    model = AutoModelForCausalLM.from_pretrained(base_model, torch_dtype=torch.bfloat16)
    model = PeftModel.from_pretrained(model, lora)
    model.eval()
    enc = tok(build_prompt(instruction), return_tensors="pt")
    with torch.inference_mode():
        out = model.generate(**enc, max_new_tokens=256, do_sample=False, pad_token_id=tok.pad_token_id)
    print(tok.decode(out[0, enc["input_ids"].shape[1]:], skip_special_tokens=True))


if __name__ == "__main__":
    fire.Fire(main)
