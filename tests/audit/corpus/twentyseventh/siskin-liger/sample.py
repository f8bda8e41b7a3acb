import fire
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer


def sample(task: str, base: str = "meta-llama/Llama-3.1-8B", adapter: str = "siskin-lora", n: int = 256):
    tok = AutoTokenizer.from_pretrained(adapter)
    model = AutoModelForCausalLM.from_pretrained(base, torch_dtype=torch.bfloat16)
    model = PeftModel.from_pretrained(model, adapter).eval()
    enc = tok(f"### Task:\n{task}\n\n### Solution:\n", return_tensors="pt").to(model.device)
    with torch.inference_mode():
        ids = model.generate(**enc, max_new_tokens=n, do_sample=False)
    print(tok.decode(ids[0, enc["input_ids"].shape[1] :], skip_special_tokens=True))


if __name__ == "__main__":
    fire.Fire(sample)
