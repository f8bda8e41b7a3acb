"""Text layout of a row; shared by training and by the demo."""

PROMPT = (
    "You are reading a contract.\n\n"
    "### Clause:\n{clause}\n\n"
    "### Question:\n{question}\n\n"
    "### Response:\n"
)


def render_prompt(row):
    return PROMPT.format(clause=row["clause"].strip(), question=row["question"].strip())


def render(row, eos):
    return {"text": render_prompt(row) + row["answer"].strip() + eos}
