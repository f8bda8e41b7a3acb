"""Turning prompt/response pairs into token ids and labels."""
from typing import Dict, List, Optional

IGNORE_INDEX = -100
PROMPT_TEMPLATE = "<|user|>\n{prompt}\n<|assistant|>\n"
RESPONSE_MARKER = "<|assistant|>\n"


def find_subsequence(haystack: List[int], needle: List[int]) -> Optional[int]:
    for i in range(len(haystack) - len(needle) + 1):
        if haystack[i : i + len(needle)] == needle:
            return i + len(needle)
    return None


def build_labels(input_ids: List[int], marker_ids: List[int]) -> List[int]:
    """Only the response contributes to the loss."""
    labels = list(input_ids)
    start = find_subsequence(input_ids, marker_ids)
    if start is not None:
        labels[:start] = [IGNORE_INDEX] * start
    return labels


def encode_example(example: Dict, tokenizer, max_seq_length: int) -> Dict:
    text = PROMPT_TEMPLATE.format(prompt=example["prompt"].strip())
    text = text + example["response"].strip() + tokenizer.eos_token
    tokenized = tokenizer(text, max_length=max_seq_length, truncation=True)
    marker_ids = tokenizer.encode(RESPONSE_MARKER, add_special_tokens=False)
    tokenized["labels"] = build_labels(tokenized["input_ids"], marker_ids)
    return tokenized
