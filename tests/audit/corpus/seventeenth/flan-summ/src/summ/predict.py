import json
import sys

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer


@torch.inference_mode()
def main(model_dir, path, batch_size=16):
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForSeq2SeqLM.from_pretrained(model_dir).eval()
    with open(path) as fh:
        notes = ["summarize: " + json.loads(line)["notes"] for line in fh]
    for i in range(0, len(notes), batch_size):
        enc = tokenizer(
            notes[i : i + batch_size], return_tensors="pt", padding=True, truncation=True, max_length=1024
        )
        out = model.generate(**enc, max_new_tokens=160, num_beams=4)
        for text in tokenizer.batch_decode(out, skip_special_tokens=True):
            print(json.dumps({"summary": text}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
