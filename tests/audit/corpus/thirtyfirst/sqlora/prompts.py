SYSTEM = (
    "You translate questions into PostgreSQL for the warehouse described below. "
    "Answer with one statement and nothing else.\n\n{schema}"
)


def to_messages(row, with_answer=True):
    msgs = [
        {"role": "system", "content": SYSTEM.format(schema=row["schema"])},
        {"role": "user", "content": row["question"]},
    ]
    if with_answer:
        msgs.append({"role": "assistant", "content": row["sql"].strip().rstrip(";") + ";"})
    return msgs
