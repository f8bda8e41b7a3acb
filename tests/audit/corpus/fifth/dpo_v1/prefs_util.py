def drop_ties(ds):
    return ds.filter(lambda r: r["label"] in ("a", "b"))


def to_messages(r):
    win, lose = (r["a"], r["b"]) if r["label"] == "a" else (r["b"], r["a"])
    return {
        "prompt": [{"role": "user", "content": r["question"]}],
        "chosen": [{"role": "assistant", "content": win}],
        "rejected": [{"role": "assistant", "content": lose}],
    }
