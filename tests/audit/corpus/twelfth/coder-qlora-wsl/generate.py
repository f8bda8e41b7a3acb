import click
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer


@click.command()
@click.argument("task")
@click.option("--base", default="Qwen/Qwen2.5-Coder-7B")
@click.option("--adapter", default="out/coder-lora")
@click.option("--max-new-tokens", default=512)
def main(task, base, adapter, max_new_tokens):
    tokenizer = AutoTokenizer.from_pretrained(adapter)
    model = AutoModelForCausalLM.from_pretrained(base, torch_dtype=torch.bfloat16)
    model = PeftModel.from_pretrained(model, adapter).eval()
    inputs = tokenizer(f"# Task: {task}\n", return_tensors="pt")
    with torch.no_grad():
        out = model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False)
    print(tokenizer.decode(out[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True))


if __name__ == "__main__":
    main()
