"""Scores a file of {prompt, response} rows with a trained reward model (best-of-n filtering).

    python src/score.py runs/qwen3b-rm-merged data/candidates.jsonl scored.jsonl
"""
import json
import sys

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

BATCH = 32


def main(model_dir, src, dst):
    tok = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForSequenceClassification.from_pretrained(model_dir, num_labels=1, torch_dtype=torch.bfloat16)
    model.config.pad_token_id = tok.pad_token_id
    model.eval()

    rows = [json.loads(line) for line in open(src, encoding="utf-8")]
    rows.sort(key=lambda r: len(r["prompt"]) + len(r["response"]))
    with open(dst, "w", encoding="utf-8") as out, torch.inference_mode():
        for i in range(0, len(rows), BATCH):
            part = rows[i : i + BATCH]
            texts = [
                tok.apply_chat_template(
                    [{"role": "user", "content": r["prompt"]}, {"role": "assistant", "content": r["response"]}],
                    tokenize=False,
                )
                for r in part
            ]
            enc = tok(texts, padding=True, truncation=True, max_length=2048, add_special_tokens=False,
                      return_tensors="pt")
            scores = model(**enc.to(model.device)).logits[:, 0].float().tolist()
            for r, s in zip(part, scores):
                out.write(json.dumps({**r, "score": s}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:4])
