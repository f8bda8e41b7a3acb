"""Promise: masks, ends, prompts and padding of rows are followed through names, helpers and files; near misses are not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited


def codes(folder: Path, files: dict[str, str], code: str) -> list[str]:
    return [one.message for one in audited(folder, files).findings if one.code == code]


README = {"README.md": "# A run\n\nThe loss is taken on the assistant turns only.\n"}
AXOLOTL = "base_model: Qwen/Qwen2.5-0.5B\ndatasets:\n  - path: d.jsonl\n    type: {type}\n{more}sequence_len: 2048\n"


@pytest.mark.parametrize(
    ("kind", "more", "documents", "found"),
    [
        ("alpaca", "train_on_inputs: true\n", README, True),
        ("alpaca", "train_on_inputs: false\n", README, False),
        ("alpaca", "train_on_inputs: true\n", {}, False),
        ("chat_template", "train_on_inputs: true\n", README, False),
        ("chat_template", '    roles_to_train: ["assistant", "user"]\n', README, True),
        ("chat_template", '    roles_to_train: ["assistant"]\n', README, False),
        ("alpaca", "train_on_inputs: true\n", {"README.md": "User tokens do not count in the loss.\n"}, True),
        ("alpaca", "train_on_inputs: true\n", {"README.md": "We mask the prompt.\n"}, True),
        (
            "alpaca",
            "train_on_inputs: true\n",
            {"README.md": "Set `train_on_inputs: false` for loss on answers only.\n"},
            False,
        ),
    ],
)
def test_keys_under_a_claim(tmp_path: Path, kind: str, more: str, documents: dict[str, str], found: bool) -> None:
    files = {"a.yml": AXOLOTL.format(type=kind, more=more), **documents}
    assert bool(codes(tmp_path, files, "MSK001")) is found


FLASH = {"README.md": "# Setup\n\n    pip install flash-attn --no-build-isolation   # attention twice as fast\n"}


@pytest.mark.parametrize(("value", "found"), [("false", True), ("true", False)])
def test_a_package_that_a_configuration_switches_off(tmp_path: Path, value: str, found: bool) -> None:
    text = AXOLOTL.format(type="alpaca", more="") + f"micro_batch_size: 4\nflash_attention: {value}\n"
    said = [one.message for one in audited(tmp_path, {"a.yml": text, **FLASH}).findings]
    assert any("tells to install flash-attn" in one and "leaves it unused" in one for one in said) is found


PADDED = """from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
def encode(batch):
    enc = tok(batch["text"], truncation=True, padding="max_length", max_length=512, return_tensors="pt")
    ids = enc["input_ids"].squeeze(0)
    enc["labels"] = {labels}
    return enc
"""


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ("[one[:] for one in enc['input_ids']]", True),
        ("copy.deepcopy(enc['input_ids'])", True),
        ("ids.clone()", True),
        ("torch.tensor(enc.input_ids)", True),
        ("[one for one in enc['input_ids'] if one]", False),
        ("shifted(enc['input_ids'])", False),
        ("[[t if m else -100 for t, m in zip(*row)] for row in zip(enc['input_ids'], enc['attention_mask'])]", False),
    ],
)
def test_labels_that_are_the_input(tmp_path: Path, labels: str, found: bool) -> None:
    assert bool(codes(tmp_path, {"train.py": PADDED.format(labels=labels)}, "MSK052")) is found


PAIRS = """import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
def collate(rows):
{body}
for x, y in loader:
    loss = {loss}
    loss.backward()
    opt.step()
"""
WHOLE = "F.cross_entropy(model(x, attn_mask=causal).flatten(0, 1), y.flatten(){more})"
BY_TOKENIZER = """    enc = tok(rows, padding=True, return_tensors="pt")
    x = enc["input_ids"][:, :-1]
    y = enc["input_ids"][:, 1:]
    return x, y"""
BY_TWO = """    x = pad_sequence([one[:-1] for one in rows], batch_first=True, padding_value=PAD)
    y = pad_sequence([one[1:] for one in rows], batch_first=True, padding_value={fill})
    return x, y"""


@pytest.mark.parametrize(
    ("body", "more", "found"),
    [
        (BY_TOKENIZER, "", True),
        (BY_TOKENIZER, ", ignore_index=0", False),
        (BY_TWO.format(fill="PAD"), "", True),
        (BY_TWO.format(fill="-100"), "", False),
        ("    x, y = zip(*rows)\n    return pad_sequence(x), torch.stack(y)", "", False),
    ],
)
def test_targets_with_padding(tmp_path: Path, body: str, more: str, found: bool) -> None:
    text = PAIRS.format(body=body, loss=WHOLE.format(more=more))
    assert bool(codes(tmp_path, {"train.py": text}, "MSK052")) is found


DPO = """from trl import DPOConfig, DPOTrainer
def render(messages, gen=False):
    return tok.apply_chat_template(messages, tokenize=False, add_generation_prompt=gen)
{rows}
DPOTrainer("Qwen/Qwen2.5-0.5B-Instruct", args=DPOConfig("o"), train_dataset=data.map(fmt)).train()
"""
BY_HELPER = """def fmt(row):
    user = {"role": "user", "content": row["q"]}
    good = %s{"role": "assistant", "content": row["good"]}]
    bad = %s{"role": "assistant", "content": row["bad"]}]
    return {"prompt": render([user], gen=True), "chosen": render(good), "rejected": render(bad)}
"""
BY_LISTS = """def fmt(batch):
    return {
        "prompt": ["Q: " + q + " A: " for q in batch["q"]],
        "chosen": [%sa for q, a in zip(batch["q"], batch["good"])],
        "rejected": [%sa for q, a in zip(batch["q"], batch["bad"])],
    }
"""
BY_CUT = 'def fmt(row):\n    row["prompt"] = row["chosen"][:-1]\n%s    return row\n'
LAST = '    row["chosen"] = row["chosen"][-1:]\n    row["rejected"] = row["rejected"][-1:]\n'
BY_DICT = (
    "def build(q):\n    return f'Human: {q} Assistant: '\n"
    "def fmt(row):\n    p = build(row['q'])\n    return dict(prompt=p, chosen=%srow['a'], rejected=%srow['b'])\n"
)


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (BY_HELPER % ("[user, ", "[user, "), True),
        (BY_HELPER % ("[", "["), False),
        (BY_LISTS % (('"Q: " + q + " A: " + ',) * 2), True),
        (BY_LISTS % ("", ""), False),
        (BY_CUT % "", True),
        (BY_CUT % LAST, False),
        (BY_DICT % ("p + ", "p + "), True),
        (BY_DICT % ("", ""), False),
    ],
)
def test_prompts_in_answers(tmp_path: Path, rows: str, found: bool) -> None:
    assert bool(codes(tmp_path, {"dpo.py": DPO.format(rows=rows)}, "DPO006")) is found


SEARCHED = """def mask(input_ids, marker):
    labels = list(input_ids)
    start = None
    for i in range(len(input_ids)):
        if input_ids[i : i + 3] == marker:
            start = i + 3
    if start is not None:
        for j in range(start):
            labels[j] = -100
{rest}    return labels
"""
IN_A_BATCH = """class Collate:
    def __call__(self, rows):
        batch = self.tok.pad(rows, return_tensors="pt")
        labels = batch["input_ids"].clone()
        for i, ids in enumerate(batch["input_ids"].tolist()):
            pos = -1
            for k in range(len(ids)):
                if ids[k : k + 3] == self.ids:
                    pos = k
            if pos == -1:
                {missing}
                continue
            labels[i, :pos] = -100
        return {{"labels": labels, "answer": 0}}
"""
SPLIT = """def build(row, tok):
    text = row["text"]
    enc = tok(text)
    parts = text.split("### Response:")
    n = len(tok(parts[0])["input_ids"]) if len(parts) > 1 else {none}
    enc["labels"] = [-100] * n + enc["input_ids"][n:]
    return enc
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (SEARCHED.format(rest=""), True),
        (SEARCHED.format(rest="    else:\n        labels = [-100] * len(labels)\n"), False),
        (SEARCHED.format(rest="    if start is None:\n        return None\n"), False),
        (IN_A_BATCH.format(missing="print('no answer')"), True),
        (IN_A_BATCH.format(missing="labels[i, :] = -100"), False),
        (SPLIT.format(none="0"), True),
        (SPLIT.format(none="len(enc['input_ids'])"), False),
    ],
)
def test_rows_without_an_answer(tmp_path: Path, text: str, found: bool) -> None:
    assert bool(codes(tmp_path, {"data.py": text}, "MSK050")) is found


TRAINS = """from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
tok = AutoTokenizer.from_pretrained("{model}")
tok.pad_token = tok.eos_token
model = AutoModelForCausalLM.from_pretrained("{model}")
def encode(row):
    return tok({text}, truncation=True, max_length=512)
Trainer(model, TrainingArguments("o"), train_dataset=rows.map(encode)).train()
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("f\"### Question: {row['q']} ### Answer: {row['a']}\"", True),
        ("f\"### Question: {row['q']} ### Answer: {row['a']}\" + tok.eos_token", False),
        ("row['text']", False),
        ("tok.apply_chat_template(row['messages'], tokenize=False)", False),
    ],
)
def test_answers_without_an_end(tmp_path: Path, text: str, found: bool) -> None:
    files = {"train.py": TRAINS.format(model="Qwen/Qwen2.5-0.5B", text=text)}
    assert bool(codes(tmp_path, files, "MSK056")) is found


RENDERED = "tok.apply_chat_template(row['messages'], tokenize=False)"


@pytest.mark.parametrize(
    ("model", "more", "found"),
    [
        ("meta-llama/Llama-3.2-1B", "", True),
        ("gpt2", "", True),
        ("Qwen/Qwen2.5-0.5B", "", False),
        ("meta-llama/Llama-3.2-1B-Instruct", "", False),
        ("meta-llama/Llama-3.2-1B", "tok.chat_template = CHATML\n", False),
    ],
)
def test_a_base_model_without_a_template(tmp_path: Path, model: str, more: str, found: bool) -> None:
    files = {"train.py": TRAINS.format(model=model, text=RENDERED).replace("def encode", f"{more}def encode")}
    assert bool(codes(tmp_path, files, "CFG015")) is found
    old = {**files, "requirements.txt": "transformers==4.40.0\n"}
    assert not codes(tmp_path / "old", old, "CFG015")


@pytest.mark.parametrize(
    ("model", "found"), [("meta-llama/Llama-3.1-8B-Instruct", True), ("Qwen/Qwen2.5-0.5B-Instruct", False)]
)
def test_chatml_for_another_family(tmp_path: Path, model: str, found: bool) -> None:
    text = AXOLOTL.format(type="chat_template", more="").replace("Qwen/Qwen2.5-0.5B", model) + "chat_template: chatml\n"
    assert bool(codes(tmp_path, {"a.yml": text}, "CFG015")) is found


COLLATOR = """from trl import DataCollatorForCompletionOnlyLM, SFTConfig, SFTTrainer
collator = DataCollatorForCompletionOnlyLM("### Answer:", tokenizer=tok)
args = SFTConfig("o", packing=%s)
SFTTrainer("Qwen/Qwen2.5-0.5B", args=args, train_dataset=rows, data_collator=collator).train()
"""


@pytest.mark.parametrize(
    ("packing", "version", "found"), [("True", "0.12.2", True), ("True", "0.19.1", False), ("False", "0.12.2", False)]
)
def test_packing_beside_the_collator_of_answers(tmp_path: Path, packing: str, version: str, found: bool) -> None:
    files = {"sft.py": COLLATOR % packing, "requirements.txt": f"trl=={version}\ntransformers==4.46.3\n"}
    assert bool(codes(tmp_path, files, "CFG013")) is found


MAPPED = """from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments
tok = AutoTokenizer.from_pretrained("bert-base-uncased")
def prepare(batch):
    return tok(batch["text"], truncation=True%s)
rows = load_dataset("imdb", split="train").map(prepare%s)
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
Trainer(model, TrainingArguments("o"), train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("padding", "more", "said"),
    [
        (', padding="max_length"', ", batched=True", "tokenizer's own limit"),
        (", padding=True", ", batched=True", "the 1,000"),
        (", padding=True", ", batched=True, batch_size=None", "longest of all"),
        (", padding=True", ", batched=True, batch_size=16", ""),
        (", padding=True", "", ""),
        ("", ", batched=True", ""),
        (", padding=True, max_length=64", ", batched=True", ""),
    ],
)
def test_rows_that_map_pads(tmp_path: Path, padding: str, more: str, said: str) -> None:
    found = codes(tmp_path, {"train.py": MAPPED % (padding, more)}, "PAD005")
    assert any(said in one for one in found) if said else not found


SDPA = """import torch
import torch.nn.functional as F
class Attention(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(n, n, dtype=torch.bool)))
    def forward(self, q, k, v, pad):
        n = q.size(2)
        {given}
        return F.scaled_dot_product_attention(q, k, v, {how})
model = Attention(2048).cuda()
for batch in loader:
    model(*batch).mean().backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("given", "how", "found"),
    [
        ("pass", "attn_mask=self.mask[:n, :n]", True),
        ("mask = torch.full((n, n), float('-inf')).triu(1)", "attn_mask=mask.to(q.device)", True),
        ("pass", "is_causal=True", False),
        ("mask = self.mask[:n, :n] & pad[:, None, None]", "attn_mask=mask", False),
    ],
)
def test_a_causal_mask_alone(tmp_path: Path, given: str, how: str, found: bool) -> None:
    assert bool(codes(tmp_path, {"train.py": SDPA.format(given=given, how=how)}, "ATT004")) is found


@pytest.mark.parametrize(
    ("name", "found"), [("xformers", True), ("flash_attn_2", True), ("sdpa", False), ("kernels-community/x", False)]
)
def test_an_attention_of_no_name(tmp_path: Path, name: str, found: bool) -> None:
    text = (
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        f'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", attn_implementation="{name}")\n'
        'Trainer(model, TrainingArguments("o", bf16=True), train_dataset=rows).train()\n'
    )
    said = codes(tmp_path, {"train.py": text}, "ATT005")
    assert any("is no attention" in one for one in said) is found


DENSE = """import torch
import torch.nn.functional as F
class LM(torch.nn.Module):
    def forward(self, ids, doc_ids):
        causal = torch.ones(8192, 8192, dtype=torch.bool).tril()
        mask = ({same}) & causal
        for b in self.blocks:
            x = b(x, mask)
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)
model = LM().cuda()
for batch in loader:
    model(*batch).mean().backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("same", "found"),
    [
        ("doc_ids[:, :, None] == doc_ids[:, None, :]", True),
        ("doc_ids[:, None, :] == doc_ids[:, :, None]", True),
        ("doc_ids.unsqueeze(1).eq(doc_ids.unsqueeze(2))", True),
        ("doc_ids[:, :, None] == other[:, None, :]", False),
    ],
)
def test_masks_of_segments(tmp_path: Path, same: str, found: bool) -> None:
    assert bool(codes(tmp_path, {"train.py": DENSE.format(same=same)}, "ATT001")) is found


LOOP = """from transformers import AutoModelForCausalLM
policy = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B").cuda()
reference = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B").cuda()
{frozen}
def logps(model, batch):
    return model(**batch).loss
for batch in loader:
    a = logps(policy, batch)
    b = logps(reference, batch)
    (a - b).backward()
    opt.step()
"""


@pytest.mark.parametrize(("frozen", "found"), [("pass", True), ("reference.requires_grad_(False)", False)])
def test_a_reference_with_gradients_by_a_helper(tmp_path: Path, frozen: str, found: bool) -> None:
    assert bool(codes(tmp_path, {"train.py": LOOP.format(frozen=frozen)}, "MEM052")) is found


TRANSFORM = """from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
rows = load_dataset("json", data_files="a.jsonl", split="train")
rows.set_transform(lambda batch: {made})
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
Trainer(model, TrainingArguments("o", num_train_epochs=3), train_dataset=rows).train()
"""


@pytest.mark.parametrize(("made", "found"), [("tok(batch['text'])", True), ("batch['text']", False)])
def test_a_transform_that_tokenises(tmp_path: Path, made: str, found: bool) -> None:
    assert bool(codes(tmp_path, {"train.py": TRANSFORM.format(made=made)}, "HST006")) is found


ANSWERS = """from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments, {collator}
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B"{side})
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
def encode(row):
    n = len(tok(row["prompt"])["input_ids"])
    full = tok(row["prompt"] + row["answer"] + tok.eos_token{padding})
    labels = full["input_ids"].copy()
    labels[:n] = [-100] * n
    return {{"input_ids": full["input_ids"], "labels": labels}}
collator = {collator}({given})
Trainer(model, TrainingArguments("o"), train_dataset=rows.map(encode), data_collator=collator).train()
"""
ANEW = {"collator": "DataCollatorForLanguageModeling", "given": "tok, mlm=False"}
KEPT = {"collator": "DataCollatorForSeq2Seq", "given": "tok"}
FULL = ', padding="max_length", max_length=512'


@pytest.mark.parametrize(
    ("collator", "side", "padding", "found"),
    [
        (ANEW, "", "", True),
        (KEPT, "", "", False),
        (KEPT, ', padding_side="left"', FULL, True),
        (KEPT, ', padding_side="right"', FULL, False),
        (KEPT, ', padding_side="left"', "", False),
    ],
)
def test_masks_that_do_not_last(tmp_path: Path, collator: dict[str, str], side: str, padding: str, found: bool) -> None:
    text = ANSWERS.format(side=side, padding=padding, **collator)
    assert bool(codes(tmp_path, {"train.py": text}, "MSK050")) is found


@pytest.mark.parametrize(("given", "found"), [("tok", True), ("tok, mlm=False", False), ("tok, False", False)])
def test_words_that_are_masked(tmp_path: Path, given: str, found: bool) -> None:
    text = ANSWERS.format(side="", padding="", collator=ANEW["collator"], given=given)
    assert bool(codes(tmp_path, {"train.py": text}, "CFG013")) is found


TURNS = """from transformers import AutoModelForCausalLM, Trainer
def encode(row):
    ids, labels = [], []
    for turn in row["messages"]:
        part = tok(turn["content"]).input_ids
        ids += part
        {given}
    return {{"input_ids": ids, "labels": labels}}
Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), args, train_dataset=rows.map(encode)).train()
"""


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ('labels += part if turn["role"] == "user" else [-100] * len(part)', True),
        ('labels += part if turn["role"] != "assistant" else [-100] * len(part)', True),
        ('labels += part if turn["role"] == "assistant" else [-100] * len(part)', False),
        ('labels += [-100] * len(part) if turn["role"] == "user" else part', False),
        (
            'if turn["role"] == "user":\n            labels.extend(part)\n'
            "        else:\n            labels.extend([-100] * len(part))",
            True,
        ),
    ],
)
def test_turns_of_users_alone(tmp_path: Path, given: str, found: bool) -> None:
    assert bool(codes(tmp_path, {"train.py": TURNS.format(given=given)}, "MSK001")) is found


@pytest.mark.parametrize(("fill", "found"), [("tok.pad_token_id", True), ("0", True), ("-100", False)])
def test_prompts_labelled_as_padding(tmp_path: Path, fill: str, found: bool) -> None:
    labels = f'    prompt = part\n    labels = [{fill}] * len(prompt) + part\n    return {{"labels": labels}}\n'
    text = TURNS.format(given="pass").replace('    return {"input_ids": ids, "labels": labels}\n', labels)
    assert bool(codes(tmp_path, {"train.py": text}, "MSK052")) is found


@pytest.mark.parametrize(("column", "found"), [("text", True), ("messages", False)])
def test_assistants_in_whole_texts(tmp_path: Path, column: str, found: bool) -> None:
    text = (
        "from trl import SFTConfig, SFTTrainer\n"
        f'rows = rows.map(lambda row: {{"{column}": render(row)}})\n'
        'SFTTrainer("Qwen/Qwen2.5-0.5B", args=SFTConfig("o", assistant_only_loss=True), train_dataset=rows).train()\n'
    )
    assert bool(codes(tmp_path, {"train.py": text}, "MSK050")) is found


PATCHED = """from liger_kernel.transformers import apply_liger_kernel_to_{name}
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
apply_liger_kernel_to_{name}()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
Trainer(model, TrainingArguments("o"), train_dataset=rows).train()
"""


@pytest.mark.parametrize(("name", "found"), [("llama", True), ("qwen2", False)])
def test_kernels_of_another_family(tmp_path: Path, name: str, found: bool) -> None:
    assert bool(codes(tmp_path, {"train.py": PATCHED.format(name=name)}, "CMP001")) is found


LOADED = """from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
model = {model}
SFTTrainer(model, args=SFTConfig("o", use_liger=True), train_dataset=rows).train()
"""
INSTANCE = 'AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")'


@pytest.mark.parametrize(
    ("model", "version", "found"),
    [(INSTANCE, "0.12.2", True), ('"Qwen/Qwen2.5-1.5B"', "0.12.2", False), (INSTANCE, "0.11.4", False)],
)
def test_kernels_for_a_model_that_is_loaded(tmp_path: Path, model: str, version: str, found: bool) -> None:
    files = {"train.py": LOADED.format(model=model), "requirements.txt": f"trl=={version}\n"}
    assert bool(codes(tmp_path, files, "CMP001")) is found


def test_one_package_is_said_once(tmp_path: Path) -> None:
    text = "For faster training install Flash Attention 2:\n\n    pip install flash-attn\n"
    train = PATCHED.format(name="qwen2")
    said = codes(tmp_path, {"README.md": text, "train.py": train}, "CFG011")
    assert len([one for one in said if "flash-attn" in one]) == 1


SYSTEM = """from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer
model = AutoModelForCausalLM.from_pretrained("{model}")
def to_messages(row):
    return {{"messages": [{{"role": "{role}", "content": "Be brief."}}, {{"role": "user", "content": row["q"]}}]}}
SFTTrainer(model, args=SFTConfig("o"), train_dataset=rows.map(to_messages)).train()
"""


@pytest.mark.parametrize(
    ("model", "role", "found"),
    [
        ("google/gemma-2-2b-it", "system", True),
        ("google/gemma-2-2b-it", "user", False),
        ("google/gemma-3-1b-it", "system", False),
        ("Qwen/Qwen2.5-0.5B-Instruct", "system", False),
    ],
)
def test_a_system_turn_that_is_refused(tmp_path: Path, model: str, role: str, found: bool) -> None:
    text = SYSTEM.format(model=model, role=role)
    assert bool(codes(tmp_path, {"train.py": text}, "CFG015")) is found


ON_MESSAGES = """from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

# {}
args = SFTConfig(output_dir="out", seed=1)
train = load_dataset("json", data_files="train.jsonl", split="train")
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=args, train_dataset=train).train()
"""
A_CHAT = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'
A_PAIR = '{"prompt": "a", "completion": "b"}\n'


@pytest.mark.parametrize(
    ("comment", "rows", "pin", "says"),
    [
        (
            "only the assistant turns contribute to the loss",
            A_CHAT,
            "trl==0.16.1",
            "DataCollatorForCompletionOnlyLM(...)",
        ),
        ("the loss is computed on the answers only", A_CHAT, "trl==0.18.0", "`prompt` and `completion`"),
        ("the loss is computed on the answers only", A_CHAT, "trl==0.24.0", "{% generation %}"),
        ("the loss is computed on the answers only", A_PAIR, "trl==0.24.0", ""),
        ("the loss is computed on all tokens", A_CHAT, "trl==0.24.0", ""),
    ],
)
def test_messages_that_only_the_data_shows(tmp_path: Path, comment: str, rows: str, pin: str, says: str) -> None:
    files = {"train.py": ON_MESSAGES.format(comment), "train.jsonl": rows * 3, "requirements.txt": f"{pin}\n"}
    found = audited(tmp_path, files, select=("MSK001",)).findings
    assert [says in one.remedy.text for one in found] == [True] * bool(says)
