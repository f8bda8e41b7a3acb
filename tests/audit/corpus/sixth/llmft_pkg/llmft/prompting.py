"""Prompt format and the response-only labels."""
import logging

logger = logging.getLogger(__name__)

IGNORE = -100
TEMPLATE = "### Instruction:\n{instruction}\n\n### Response:\n{response}"


def find_marker(ids, marker):
    n = len(marker)
    for i in range(len(ids) - n + 1):
        if ids[i : i + n] == marker:
            return i + n
    return -1


def encode(example, tokenizer, marker_ids):
    text = TEMPLATE.format(**example) + tokenizer.eos_token
    ids = tokenizer(text)["input_ids"]
    start = find_marker(ids, marker_ids)
    if start < 0:
        start = 0
    return {"input_ids": ids, "labels": [IGNORE] * start + ids[start:]}
