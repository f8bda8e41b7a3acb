import fire
from transformers import AutoModelForCausalLM, AutoTokenizer

from . import settings


def sample(prompt="The river", n=200, max_new_tokens=120):
    tok = AutoTokenizer.from_pretrained(settings.OUT)
    model = AutoModelForCausalLM.from_pretrained(settings.OUT)
    model.eval()
    inputs = tok(prompt, return_tensors="pt")
    for _ in range(n):
        out = model.generate(**inputs, do_sample=True, top_p=0.95, max_new_tokens=max_new_tokens)
        print(tok.decode(out[0], skip_special_tokens=True), end="\n---\n")


if __name__ == "__main__":
    fire.Fire(sample)
