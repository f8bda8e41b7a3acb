"""Promise: rows that are written by hand with another family's marks of turns are found, and none that the model knows."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

TRAIN = """from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

tok = AutoTokenizer.from_pretrained("{model}")
{more}

def encode(row):
    prompt = tok(f"{begin}user\\n{{row['q']}}{end}\\n{begin}assistant\\n", add_special_tokens=False)["input_ids"]
    answer = tok(row["a"] + "{end}", add_special_tokens=False)["input_ids"]
    return {{"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}}


model = AutoModelForCausalLM.from_pretrained("{model}")
Trainer(model=model, args=TrainingArguments("o", seed=1), train_dataset=rows.map(encode)).train()
"""
CHATML, LLAMA3 = ("<|im_start|>", "<|im_end|>"), ("<|start_header_id|>", "<|eot_id|>")


@pytest.mark.parametrize(
    ("model", "marks", "more", "found"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", CHATML, "", 1),
        ("mistralai/Mistral-7B-Instruct-v0.3", CHATML, "", 1),
        ("Qwen/Qwen2.5-7B-Instruct", LLAMA3, "", 1),
        ("Qwen/Qwen2.5-7B-Instruct", CHATML, "", 0),
        ("meta-llama/Llama-3.1-8B-Instruct", LLAMA3, "", 0),
        ("meta-llama/Llama-3.1-8B", CHATML, "", 0),
        ("someone/Llama-3.1-8B-Instruct-chatml", CHATML, "", 0),
        ("meta-llama/Llama-3.1-8B-Instruct", CHATML, "tok.add_tokens(['<|im_start|>', '<|im_end|>'])", 0),
        ("meta-llama/Llama-3.1-8B-Instruct", CHATML, "print(tok.apply_chat_template(chat))", 0),
    ],
)
def test_marks_that_a_model_has_not_learned(
    tmp_path: Path, model: str, marks: tuple[str, str], more: str, found: int
) -> None:
    train = TRAIN.format(model=model, begin=marks[0], end=marks[1], more=more)
    assert len(audited(tmp_path / "a", {"train.py": train}, select=("CFG015",)).findings) == found
