HEAD = "Below is an instruction that describes a task. Write a response that completes it.\n\n"


def build_prompt(instruction, context=None):
    if context:
        return f"{HEAD}### Instruction:\n{instruction}\n\n### Input:\n{context}\n\n### Response:\n"
    return f"{HEAD}### Instruction:\n{instruction}\n\n### Response:\n"
