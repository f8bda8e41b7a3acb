"""conversations.jsonl -> train.npz (flat ids, flat loss mask, offsets)"""
import json
import sys

import numpy as np
from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-3B")
IM_END = tok.convert_tokens_to_ids("<|im_end|>")


def encode(messages):
    ids, keep = [], []
    for m in messages:
        head = tok(f"<|im_start|>{m['role']}\n", add_special_tokens=False)["input_ids"]
        body = tok(m["content"].strip(), add_special_tokens=False)["input_ids"] + [IM_END]
        tail = tok("\n", add_special_tokens=False)["input_ids"]
        mine = m["role"] == "assistant"
        ids += head + body + tail
        # <|im_end|> of the assistant is learnt, the line break after it is not
        keep += [0] * len(head) + [int(mine)] * len(body) + [0] * len(tail)
    return ids, keep


def main(src, dst, longest=16384):
    flat, mask, offsets, dropped = [], [], [0], 0
    with open(src, encoding="utf8") as fh:
        for line in fh:
            ids, keep = encode(json.loads(line)["messages"])
            if len(ids) > longest or not any(keep):
                dropped += 1
                continue
            flat += ids
            mask += keep
            offsets.append(len(flat))
    np.savez(dst, ids=np.array(flat, np.int32), keep=np.array(mask, np.int8), offsets=np.array(offsets, np.int64))
    print(f"{len(offsets) - 1} conversations, {len(flat)} tokens, {dropped} dropped")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
