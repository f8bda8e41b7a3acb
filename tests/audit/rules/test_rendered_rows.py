"""Promise: what rows are made of is read where a project makes them: marks, ends and prompts, however it is written."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

OLD = {"requirements.txt": "trl==0.12.2\ntransformers==4.46.3\n"}
NEW = {"requirements.txt": "trl==0.19.1\ntransformers==4.52.4\n"}
HEAD = """from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DataCollatorForCompletionOnlyLM, SFTConfig, SFTTrainer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-1.5B")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
data = load_dataset("json", data_files="a.jsonl", split="train")
"""
TEMPLATE = 'PROMPT = """### Question:\n{question}\n\n### Answer:\n{answer}"""\n'
BY_FORMAT = f'{TEMPLATE}def to_text(row):\n    return {{"text": PROMPT.format(**row)%s}}\ndata = data.map(to_text)\n'
BY_F_STRING = (
    "def to_text(row):\n    text = f\"### Question:\\n{row['question']}\\n\\n### Answer:\\n{row['answer']}\"%s\n"
    '    return {"text": text}\ndata = data.map(to_text)\n'
)
BY_HELPER = (
    'class Words:\n    ask = "### Question:\\n"\n    tell = "\\n\\n### Answer:\\n"\n\n'
    'def body(row):\n    return Words.ask + row["question"] + Words.tell + row["answer"].strip()%s\n\n'
    'data = data.map(lambda row: {"text": body(row)})\n'
)
FORMATTED = (
    "def to_text(rows):\n    return [f'### Question: {q}\\n### Answer: {a}'%s for q, a in zip(rows['q'], rows['a'])]\n"
)
BY_ROLE = (
    'def to_text(row):\n    return {"text": "".join(f"### {t[\'role\']}:\\n{t[\'text\']}\\n" for t in row["turns"])}\n'
)
BY_CHAT = (
    'def to_text(row):\n    return {"text": tokenizer.apply_chat_template(row["messages"], tokenize=False)%s}\n'
    "data = data.map(to_text)\n"
)
MARK = "collator = DataCollatorForCompletionOnlyLM(%s, tokenizer=tokenizer)\n"
TRAINS = (
    'args = SFTConfig(output_dir="o", packing=%s)\n'
    "trainer = SFTTrainer(model=model, args=args, train_dataset=data, processing_class=tokenizer%s)\n"
    "trainer.train()\n"
)
PAD = "tokenizer.pad_token = tokenizer.eos_token\n"
EOS = " + tokenizer.eos_token"


def sft(rows: str, collator: str = "", packing: bool = False, pad: str = "", handed: str = "") -> str:
    handed = handed or (", data_collator=collator" if collator else "")
    return HEAD + pad + rows + (MARK % collator if collator else "") + TRAINS % (packing, handed)


PAIRS = """from trl import DPOConfig, DPOTrainer


def to_pairs(row):
%s


DPOTrainer("Qwen/Qwen2.5-0.5B", args=DPOConfig(output_dir="o"), train_dataset=rows.map(to_pairs%s)).train()
"""
RETURNS = '    return {"prompt": %s, "chosen": %s, "rejected": %s}'
IN_PLACE = (
    '    row["prompt"] = "Q: " + row["q"] + "\\nA:"\n    row["chosen"] = row["prompt"] + row["a"]\n'
    '    row["rejected"] = row["prompt"] + row["b"]\n    return row'
)
F_STRINGS = RETURNS % (
    "f\"Q: {row['q']}\\nA:\"",
    "f\"Q: {row['q']}\\nA: {row['a']}\"",
    "f\"Q: {row['q']}\\nA: {row['b']}\"",
)
ANSWERS = RETURNS % ("f\"Q: {row['q']}\\nA:\"", "f\" {row['a']}\"", "f\" {row['b']}\"")
KEPT = '    return {"chosen": row["prompt"] + row["chosen"], "rejected": row["prompt"] + row["rejected"]}'
RENDERED = '    asked = [{"role": "user", "content": row["q"]}]\n' + RETURNS % (
    "tok.apply_chat_template(asked, tokenize=False)",
    'tok.apply_chat_template(asked + [{"role": "assistant", "content": row["a"]}], tokenize=False)',
    'tok.apply_chat_template(asked + [{"role": "assistant", "content": row["b"]}], tokenize=False)',
)

REF = """from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer

NAME = os.environ["MODEL"]
model = AutoModelForCausalLM.from_pretrained(%s, torch_dtype="bfloat16")
ref_model = AutoModelForCausalLM.from_pretrained(%s, torch_dtype="bfloat16")
args = DPOConfig(output_dir="o", precompute_ref_log_probs=True)
DPOTrainer(model, ref_model=ref_model, args=args, train_dataset=d%s).train()
"""
ADAPTED = ", peft_config=LoraConfig(r=8)"


@pytest.mark.parametrize(
    ("code", "files", "found"),
    [
        # Marks that the rows' own text has not.
        ("MSK055", {"t.py": sft(BY_FORMAT % EOS, "'### Response:\\n'")}, True),
        ("MSK055", {"t.py": sft(BY_F_STRING % EOS, "response_template='### Response:'")}, True),
        ("MSK055", {"t.py": sft(BY_HELPER % EOS, "'<|assistant|>'")}, True),
        ("MSK055", {"t.py": sft(FORMATTED % EOS, "' ### Response:'", handed=", formatting_func=to_text")}, True),
        ("MSK055", {"t.py": sft(BY_FORMAT % EOS, "'### Answer:\\n'")}, False),
        ("MSK055", {"t.py": sft(BY_HELPER % EOS, "'\\n### Answer:'")}, False),
        ("MSK055", {"t.py": sft(BY_ROLE, "'### Response:'")}, False),  # the row's data may say so
        ("MSK055", {"t.py": sft(BY_CHAT % "", "'### Response:'").replace("1.5B", "1.5B-mine")}, False),
        ("MSK055", {"t.py": sft('data = data.rename_column("prompt", "text")\n', "'### Response:'")}, False),
        # Text without an end, for a release that adds none.
        ("MSK056", {**OLD, "t.py": sft(BY_FORMAT % "")}, True),
        ("MSK056", {**OLD, "t.py": sft(BY_F_STRING % "")}, True),
        ("MSK056", {**OLD, "t.py": sft(BY_HELPER % "")}, True),
        ("MSK056", {**OLD, "t.py": sft(FORMATTED % "", handed=", formatting_func=to_text")}, True),
        ("MSK056", {**OLD, "t.py": sft(BY_FORMAT % EOS)}, False),
        ("MSK056", {**OLD, "t.py": sft("EOS = tokenizer.eos_token\n" + BY_HELPER % " + EOS")}, False),
        ("MSK056", {**OLD, "t.py": sft(BY_F_STRING % " + '\\n### End'")}, False),
        ("MSK056", {**OLD, "t.py": sft(BY_CHAT % "")}, False),
        ("MSK056", {**OLD, "t.py": sft(BY_FORMAT % "", packing=True)}, False),
        ("MSK056", {**NEW, "t.py": sft(BY_FORMAT % "")}, False),
        ("MSK056", {"t.py": sft(BY_FORMAT % "")}, False),  # a release of today
        # Padding that is the end, under the collators that TRL has, or had.
        ("MSK003", {**OLD, "t.py": sft(BY_FORMAT % EOS, pad=PAD)}, True),
        ("MSK003", {**OLD, "t.py": sft(BY_HELPER % EOS, "'### Answer:'", pad=PAD)}, True),
        ("MSK003", {**NEW, "t.py": sft(BY_HELPER % EOS, "'### Answer:'", pad=PAD)}, True),
        ("MSK003", {**NEW, "t.py": sft(BY_FORMAT % EOS, pad=PAD)}, False),  # it masks by place
        ("MSK003", {**OLD, "t.py": sft(BY_FORMAT % EOS, pad="tokenizer.pad_token = '<pad>'\n")}, False),
        ("MSK003", {**OLD, "t.py": sft(BY_FORMAT % EOS, pad=PAD, packing=True)}, False),
        ("MSK003", {**OLD, "t.py": sft(BY_FORMAT % EOS, pad=PAD, handed=", data_collator=mine")}, False),
        # Prompts twice.
        ("DPO006", {"t.py": PAIRS % (IN_PLACE, "")}, True),
        ("DPO006", {"t.py": PAIRS % (F_STRINGS, "")}, True),
        ("DPO006", {"t.py": PAIRS % (RENDERED, "")}, True),
        ("DPO006", {"t.py": PAIRS % (KEPT, "")}, True),
        ("DPO006", {"t.py": PAIRS % (KEPT, ", remove_columns=rows.column_names")}, False),
        ("DPO006", {"t.py": PAIRS % (ANSWERS, "")}, False),
        ("DPO006", {"t.py": PAIRS % (F_STRINGS, ").remove_columns('prompt'")}, False),
        ("DPO006", {"t.py": PAIRS.replace("DPO", "Reward") % (F_STRINGS, "")}, False),
        ("DPO006", {"t.py": PAIRS % (RETURNS % ("row['q']", "row['a']", "row['b']"), "")}, False),
        # A second copy of the policy's base.
        ("DPO001", {"t.py": REF % ("NAME", "NAME", ADAPTED)}, True),
        ("DPO001", {"t.py": REF % ("'Qwen/Qwen2.5-7B'", "'Qwen/Qwen2.5-7B'", ADAPTED)}, True),
        ("DPO001", {"t.py": REF % ("cfg.model", "cfg.reference", ADAPTED)}, False),
        ("DPO001", {"t.py": REF % ("NAME", "NAME", "")}, False),
        ("DPO001", {"t.py": REF % ("NAME", "NAME", ", peft_config=get_peft_config(model_args)")}, False),
    ],
)
def test_it_is_found_and_its_neighbour_is_not(code: str, files: dict[str, str], found: bool, tmp_path: Path) -> None:
    result = audited(tmp_path, files, select=(code,))
    assert bool(result.findings) is found, [one.message for one in result.findings]


def test_a_second_copy_is_said_once(tmp_path: Path) -> None:
    files = {"t.py": REF % ("'Qwen/Qwen2.5-7B'", "'Qwen/Qwen2.5-7B'", ADAPTED)}
    assert len(audited(tmp_path, files, select=("DPO001",)).findings) == 1
