import json
import sys

from transformers import AutoTokenizer

SYSTEM = "You are a patient tutor. Give one hint, never the solution."
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct")


def to_prompt(exercise):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": exercise}]
    return tok.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def to_pair(row):
    prompt = to_prompt(row["exercise"])
    if row["score_a"] >= row["score_b"]:
        good, bad = row["hint_a"], row["hint_b"]
    else:
        good, bad = row["hint_b"], row["hint_a"]
    return {
        "prompt": prompt,
        "chosen": prompt + good,
        "rejected": prompt + bad,
    }


def main(src, dst):
    with open(src) as f, open(dst, "w") as g:
        for line in f:
            g.write(json.dumps(to_pair(json.loads(line)), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:3])
