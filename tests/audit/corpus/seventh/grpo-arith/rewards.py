import re

ANSWER = re.compile(r"<answer>\s*(-?\d+)\s*</answer>")


def _texts(completions):
    return [c[0]["content"] for c in completions]


def correct(completions, target, **kwargs):
    out = []
    for text, want in zip(_texts(completions), target):
        m = ANSWER.findall(text)
        out.append(1.0 if len(m) == 1 and int(m[0]) == want else 0.0)
    return out


def well_formed(completions, **kwargs):
    return [0.1 if len(ANSWER.findall(t)) == 1 and t.rstrip().endswith("</answer>") else 0.0
            for t in _texts(completions)]


def short_enough(completions, completion_ids=None, **kwargs):
    """A gentle slope down from 300 tokens; truncated answers are masked anyway."""
    n = [len(i) for i in completion_ids]
    return [-0.2 * max(0.0, min(1.0, (k - 300) / 200)) for k in n]
