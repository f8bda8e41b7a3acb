import re

BOXED = re.compile(r"\\boxed\{([^{}]*)\}")


def number(text):
    try:
        return float(text.replace(",", "").replace("$", "").strip())
    except ValueError:
        return None


def accuracy(completions, answer, **kwargs):
    """1 for the right number in the last box."""
    rewards = []
    for completion, gold in zip(completions, answer, strict=True):
        found = BOXED.findall(completion[0]["content"])
        value = number(found[-1]) if found else None
        rewards.append(1.0 if value is not None and value == number(gold) else 0.0)
    return rewards


def has_box(completions, **kwargs):
    """A small push towards the format."""
    return [0.1 if BOXED.search(completion[0]["content"]) else 0.0 for completion in completions]
