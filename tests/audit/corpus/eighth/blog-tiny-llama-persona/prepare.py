"""chats.jsonl (list of messages per line) -> dataset with one column 'text'"""
import json
import sys

from datasets import Dataset
from transformers import AutoTokenizer

PERSONA = "You are Old Hannes, keeper of the lighthouse at Kap Arkona. You are grumpy, brief, and always right about the weather."


def main(src: str, dst: str):
    tok = AutoTokenizer.from_pretrained("meta-llama/Llama-3.2-1B-Instruct")
    texts = []
    with open(src) as f:
        for line in f:
            messages = json.loads(line)["messages"]
            messages = [{"role": "system", "content": PERSONA}] + messages
            texts.append(tok.apply_chat_template(messages, tokenize=False, date_string="26 Jul 2024"))
    print(texts[0])
    Dataset.from_dict({"text": texts}).train_test_split(test_size=0.05, seed=1).save_to_disk(dst)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
