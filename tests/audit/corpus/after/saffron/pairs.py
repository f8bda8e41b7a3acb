"""Turn annotated answers into preference records."""


def to_preference(row):
    prompt = [{"role": "user", "content": row["question"].strip()}]
    if row.get("system"):
        prompt.insert(0, {"role": "system", "content": row["system"].strip()})
    good, bad = row["answer_a"], row["answer_b"]
    if row["preferred"] == "b":
        good, bad = bad, good
    return {
        "prompt": prompt,
        "chosen": [{"role": "assistant", "content": good.strip()}],
        "rejected": [{"role": "assistant", "content": bad.strip()}],
    }
