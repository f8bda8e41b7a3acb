from datasets import load_dataset

SYSTEM = "You are a support agent. Answer briefly and name the next step."


def to_messages(row):
    return {
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": row["question"].strip()},
            {"role": "assistant", "content": row["answer"].strip()},
        ]
    }


def load_tickets(path):
    ds = load_dataset("json", data_files=path, split="train")
    return ds.map(to_messages, remove_columns=ds.column_names)
