"""raw chats -> data/assistant-v2 with prompt/completion columns (run once)."""
import argparse

from datasets import load_dataset


def split(r):
    msgs = r["messages"]
    return {"prompt": msgs[:-1], "completion": msgs[-1:]}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--src", default="raw/chats.jsonl")
    p.add_argument("--dst", default="data/assistant-v2")
    a = p.parse_args()
    ds = load_dataset("json", data_files=a.src, split="train")
    ds = ds.filter(lambda r: len(r["messages"]) >= 2 and r["messages"][-1]["role"] == "assistant")
    ds = ds.map(split, remove_columns=ds.column_names)
    ds.train_test_split(test_size=500, seed=0).save_to_disk(a.dst)


if __name__ == "__main__":
    main()
