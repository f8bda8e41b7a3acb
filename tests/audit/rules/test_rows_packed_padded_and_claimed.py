"""Promise: packing, padding, shifted labels and claims of masks are said in the shapes that programs of strangers have; what
is right beside them is not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited


def codes(folder: Path, files: dict[str, str], code: str) -> list[str]:
    return [one.message for one in audited(folder, files).findings if one.code == code]


CLAIM = {"README.md": "Only the assistant turns contribute to the loss, so the user turns are never learned.\n"}
SFT = """from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
rows = load_dataset("json", data_files="chats.jsonl", split="train")
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=SFTConfig(output_dir="out"{more}), train_dataset=rows).train()
"""
CHATS = '{"messages": [{"role": "user", "content": "A?"}, {"role": "assistant", "content": "B."}]}\n'
PAIRS = '{"prompt": "A?", "completion": "B."}\n'


@pytest.mark.parametrize(
    ("rows", "shown", "more", "found"),
    [
        (CHATS, "", "", True),
        (CHATS, "", ", assistant_only_loss=True", False),
        (PAIRS, "", "", False),
        ("", '\nRows are `{"messages": [{"role": "user"}]}`.\n', "", True),
        ("", '\nRows are `{"prompt": "A", "completion": "B"}`.\n', "", False),
        ("", "", "", False),
    ],
)
def test_rows_that_a_program_hands_on(tmp_path: Path, rows: str, shown: str, more: str, found: bool) -> None:
    files = {"train.py": SFT.format(more=more), "README.md": CLAIM["README.md"] + shown}
    files |= {"chats.jsonl": rows} if rows else {}
    assert bool(codes(tmp_path, files, "MSK001")) is found


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("0.16.1", "DataCollatorForCompletionOnlyLM"),
        ("0.18.2", "trains on the completion alone"),
        ("0.21.0", "assistant_only_loss"),
    ],
)
def test_the_way_to_answers_is_one_that_the_pinned_release_has(tmp_path: Path, version: str, says: str) -> None:
    files = {"train.py": SFT.format(more=""), "chats.jsonl": CHATS, "requirements.txt": f"trl=={version}\n", **CLAIM}
    (found,) = [one for one in audited(tmp_path, files).findings if one.code == "MSK001"]
    assert says in found.remedy.text


LABELS = """from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, Trainer, TrainingArguments
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
def encode(row):
    out = tok(row["prompt"] + row["completion"], truncation=True, max_length=512)
    {labels}
    return out
rows = load_dataset("json", data_files="d.jsonl", split="train").map(encode)
Trainer(model=model, args=TrainingArguments("o"), train_dataset=rows{more}).train()
"""
BY_COLLATOR = ", data_collator=DataCollatorForLanguageModeling(tok, mlm=False)"


@pytest.mark.parametrize(
    ("labels", "more", "documents", "found"),
    [
        ('out["labels"] = [i if i != tok.pad_token_id else -100 for i in out["input_ids"]]', "", CLAIM, True),
        ('out["labels"] = out["input_ids"].copy()  # -100 where padded', "", CLAIM, True),
        ("pass", BY_COLLATOR, CLAIM, True),
        ("pass", BY_COLLATOR, {}, False),
        ("pass", BY_COLLATOR, {"README.md": "Only answers are judged. The loss is on all tokens.\n"}, False),
        ('out["labels"] = [-100] * len(tok(row["prompt"])["input_ids"])', "", CLAIM, False),
        (
            'out["labels"] = [i if m else -100 for i, m in zip(out["input_ids"], answer(row))]',
            "",
            CLAIM,
            False,
        ),
    ],
)
def test_all_tokens_but_padding_under_a_claim(
    tmp_path: Path, labels: str, more: str, documents: dict[str, str], found: bool
) -> None:
    files = {"train.py": LABELS.format(labels=labels, more=more), **documents}
    assert bool(codes(tmp_path, files, "MSK001")) is found


@pytest.mark.parametrize(
    ("claim", "other", "found"),
    [
        ("The loss is on the answers only.\n", "tune.py", False),
        ("In `train.py` the loss is on the answers only.\n", "tune.py", True),
        ("The loss is on the answers only.\n", "", True),
    ],
)
def test_a_claim_that_may_be_of_another_program(tmp_path: Path, claim: str, other: str, found: bool) -> None:
    files = {"train.py": LABELS.format(labels="pass", more=BY_COLLATOR), "README.md": claim}
    files |= {other: "from trl import DPOTrainer\nDPOTrainer(model, train_dataset=rows).train()\n"} if other else {}
    assert bool(codes(tmp_path, files, "MSK001")) is found


LOOP = """import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
PAD = 0
def collate(rows):
    {collate}
loader = DataLoader(rows, batch_size=32, collate_fn=collate)
for {names} in loader:
    {loss}
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SHIFTED = "logits = model(x[:, :-1])\n    loss = F.cross_entropy(logits.transpose(1, 2), x[:, 1:]{told})"
ROWS = "return pad_sequence(rows, batch_first=True, padding_value=PAD)"
FILLED = "ids = rows[0] + [PAD] * (256 - len(rows[0]))\n    return torch.tensor(ids[:-1]), torch.tensor(ids[1:])"


@pytest.mark.parametrize(
    ("collate", "names", "loss", "found"),
    [
        (ROWS, "x", SHIFTED.format(told=""), True),
        (ROWS, "x", SHIFTED.format(told=", ignore_index=PAD"), False),
        (ROWS, "x", "loss = F.cross_entropy(model(x), labels_of(x))", False),
        (FILLED, "x, y", "loss = F.cross_entropy(model(x).transpose(1, 2), y)", True),
        (FILLED, "x, y", "loss = F.cross_entropy(model(x).transpose(1, 2), y, ignore_index=PAD)", False),
    ],
)
def test_padding_that_the_loop_shifts(tmp_path: Path, collate: str, names: str, loss: str, found: bool) -> None:
    text = LOOP.format(collate=collate, names=names, loss=loss)
    assert bool(codes(tmp_path, {"train.py": text}, "MSK052")) is found


PACKED = """import json
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct")
def pack(rows, limit=4096):
    out, ids, labels = [], [], []
    for row in rows:
        if len(ids) + len(row["input_ids"]) > limit:
            {full}
        ids = ids + row["input_ids"]
        labels = labels + row["labels"]
    {last}
rows = pack([encode(json.loads(line)["messages"]) for line in open("chats.jsonl")])
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct")
Trainer(model=model, args=TrainingArguments("out"), train_dataset=rows).train()
"""
ANEW = 'out.append({"input_ids": ids, "labels": labels})\n            ids, labels = [], []'
WITH_POSITIONS = 'out.append({"input_ids": ids, "position_ids": positions(ids)})\n            ids, labels = [], []'


@pytest.mark.parametrize(
    ("full", "last", "found"),
    [
        (ANEW, "return out", True),
        (WITH_POSITIONS, "return out", False),
        ("break", 'return {"input_ids": ids, "labels": labels}', False),
    ],
)
def test_whole_rows_laid_behind_each_other(tmp_path: Path, full: str, last: str, found: bool) -> None:
    assert bool(codes(tmp_path, {"train.py": PACKED.format(full=full, last=last)}, "PAD001")) is found


WINDOWS = """import numpy as np, torch
from transformers import {model}
data = np.memmap("t.bin", dtype=np.uint16, mode="r")
def get_batch():
    at = torch.randint(len(data) - 1025, (16,))
    x = torch.stack([torch.from_numpy(data[i:i + 1024].astype(np.int64)) for i in at])
    y = torch.stack([torch.from_numpy(data[{later}].astype(np.int64)) for i in at])
    return x.cuda(), y.cuda()
for step in range(1000):
    x, y = get_batch()
    loss = {loss}
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("model", "later", "loss", "found"),
    [
        ("GPT2LMHeadModel", "i + 1:i + 1025", "model(x, labels=y).loss", True),
        ("GPT2LMHeadModel", "i:i + 1024", "model(x, labels=y).loss", False),
        ("GPT2LMHeadModel", "i + 1:i + 1025", "F.cross_entropy(model(x).logits.transpose(1, 2), y)", False),
        ("AutoTokenizer", "i + 1:i + 1025", "model(x, labels=y).loss", False),
    ],
)
def test_windows_that_are_shifted_twice(tmp_path: Path, model: str, later: str, loss: str, found: bool) -> None:
    text = WINDOWS.format(model=model, later=later, loss=loss)
    assert bool(codes(tmp_path, {"train.py": text}, "MSK051")) is found


LEFT = """from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B", padding_side="{side}")
def collate(rows):
    enc = tok([row["text"] for row in rows], padding=True, return_tensors="pt")
    labels = enc["input_ids"].clone()
    for i, row in enumerate(rows):
        n = len(tok(row["prompt"])["input_ids"])
        {masked} = -100
    enc["labels"] = labels
    return enc
"""


@pytest.mark.parametrize(
    ("side", "masked", "found"),
    [
        ("left", "labels[i, :n]", True),
        ("right", "labels[i, :n]", False),
        ("left", "offset = int((enc['attention_mask'][i] == 0).sum()); labels[i, :offset + n]", False),
    ],
)
def test_prompts_counted_from_the_left(tmp_path: Path, side: str, masked: str, found: bool) -> None:
    assert bool(codes(tmp_path, {"train.py": LEFT.format(side=side, masked=masked)}, "MSK050")) is found


STREAM = """import json
from torch.utils.data import DataLoader, IterableDataset
class Stream(IterableDataset):
    def __iter__(self):
        {before}for line in open("d.jsonl"):
            yield json.loads(line)
loader = DataLoader(Stream(), batch_size=8, num_workers={workers}){behind}
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("before", "workers", "behind", "found"),
    [
        ("", 4, "", True),
        ("", 4, "  # dynotune: ignore[DAT051] on purpose", False),
        ("", 1, "", False),
        ("info = get_worker_info()\n        ", 4, "", False),
        ("random.shuffle(self.files)\n        ", 4, "", False),
    ],
)
def test_rows_from_every_worker(tmp_path: Path, before: str, workers: int, behind: str, found: bool) -> None:
    text = STREAM.format(before=before, workers=workers, behind=behind)
    assert bool(codes(tmp_path, {"train.py": text}, "DAT051")) is found


AT_ONCE = """import pandas as pd, torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments
tok = AutoTokenizer.from_pretrained("bert-base-uncased")
df = pd.read_csv("tweets.csv")
{name} = tok({texts}, padding=True, truncation=True{more}, return_tensors="pt")
rows = TensorDataset({name}["input_ids"], {name}["attention_mask"])
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
Trainer(model=model, args=TrainingArguments("out"), train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("name", "texts", "more", "found"),
    [
        ("encodings", "df.text.tolist()", "", True),
        ("encodings", "list(df['text'])", ", max_length=512", True),
        ("encodings", "df.text.tolist()", ", max_length=64", False),
        ("test_encodings", "df.text.tolist()", "", False),
        ("encodings", "['one', 'two']", "", False),
    ],
)
def test_all_rows_padded_in_one_call(tmp_path: Path, name: str, texts: str, more: str, found: bool) -> None:
    text = AT_ONCE.format(name=name, texts=texts, more=more)
    assert bool(codes(tmp_path, {"train.py": text}, "PAD005")) is found


GROUPED = """from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
rows = load_dataset("c4", split="train"{more})
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B"{kernel})
args = TrainingArguments("out", max_steps=100{keys})
Trainer(model=model, args=args, train_dataset=rows).train()
"""


@pytest.mark.parametrize(("more", "found"), [(", streaming=True", True), ("", False), (", streaming=False", False)])
def test_a_stream_that_is_grouped_by_length(tmp_path: Path, more: str, found: bool) -> None:
    text = GROUPED.format(more=more, kernel="", keys=", group_by_length=True")
    files = {"train.py": text, "requirements.txt": "transformers==4.48.3\n"}
    assert bool(codes(tmp_path, files, "PAD004")) is found


@pytest.mark.parametrize(
    ("version", "keys", "found"), [("4.48.3", "", True), ("4.48.3", ", bf16=True", False), ("5.0.0", "", False)]
)
def test_flash_attention_of_a_trainer_in_float32(tmp_path: Path, version: str, keys: str, found: bool) -> None:
    text = GROUPED.format(more="", kernel=', attn_implementation="flash_attention_2"', keys=keys)
    files = {"train.py": text, "requirements.txt": f"transformers=={version}\nflash-attn==2.7.4\n"}
    said = codes(tmp_path, files, "ATT005")
    assert any("loaded without a type" in one for one in said) is found


BLOCKS = """import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
def {function}(lengths, T):
    m = torch.full((T, T), float("-inf"))
    at = 0
    for n in lengths:
        {filled}
        at += n
    return m
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", attn_implementation="{kernel}")
Trainer(model=model, args=TrainingArguments("out"), train_dataset=rows, data_collator=collate).train()
"""
TRIANGLE = "m[at:at + n, at:at + n] = torch.triu(torch.full((n, n), float('-inf')), 1)"


@pytest.mark.parametrize(
    ("function", "filled", "kernel", "found"),
    [
        ("block_mask", TRIANGLE, "sdpa", True),
        ("block_mask", TRIANGLE, "flash_attention_2", False),
        ("block_mask", "m[at] = 0", "sdpa", False),
        ("distances", TRIANGLE, "sdpa", False),
    ],
)
def test_blocks_on_a_diagonal(tmp_path: Path, function: str, filled: str, kernel: str, found: bool) -> None:
    text = BLOCKS.format(function=function, filled=filled, kernel=kernel)
    assert bool(codes(tmp_path, {"train.py": text}, "ATT001")) is found


PREPARED = """import numpy as np, tiktoken
from datasets import load_dataset
enc = tiktoken.get_encoding("gpt2")
def process(row):
    return {{"ids": enc.encode_ordinary(row["text"]){end}}}
rows = load_dataset("stories", split="train").map(process)
arr = np.memmap("train.bin", dtype=np.uint16, mode="w+", shape=(sum(map(len, rows["ids"])),))
at = 0
for row in rows:
    n = len(row["ids"])
    arr[at:at + n] = row["ids"]
    at += n
"""


@pytest.mark.parametrize(("end", "found"), [("", True), (" + [enc.eot_token]", False)])
def test_documents_laid_into_a_file_by_map(tmp_path: Path, end: str, found: bool) -> None:
    train = 'import numpy as np\ndata = np.memmap("train.bin", mode="r")\nloss = model(data)\nloss.backward()\n'
    files = {"prepare.py": PREPARED.format(end=end), "train.py": train}
    assert bool(codes(tmp_path, files, "MSK058")) is found


DIVIDED = """import pandas as pd
from sklearn.model_selection import train_test_split
from sklearn.utils import resample
df = pd.read_csv("d.csv")
rare = df[df.label == 1]
{made}
train, test = train_test_split({rows}, test_size=0.1, random_state=1)
"""


@pytest.mark.parametrize(
    ("made", "rows", "found"),
    [
        ("df = pd.concat([df, rare, rare, rare])", "df", True),
        ("both = pd.concat([df] + [rare] * 4).sample(frac=1)", "both", True),
        ("more = resample(rare, replace=True, n_samples=500)\nboth = pd.concat([df, more])", "both", True),
        ("df = pd.concat([df, pd.read_csv('e.csv')])", "df", False),
        ("both = pd.concat([df, rare, rare])", "df", False),
    ],
)
def test_rows_repeated_before_they_are_divided(tmp_path: Path, made: str, rows: str, found: bool) -> None:
    text = DIVIDED.format(made=made, rows=rows)
    assert bool(codes(tmp_path, {"train.py": text}, "DAT004")) is found


HEADED = """from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct")
def encode(m):
    prompt = tok.apply_chat_template(m[:-1], tokenize=False{header})
    p = tok(prompt, add_special_tokens=False)["input_ids"]
    a = tok({answer}, add_special_tokens=False)["input_ids"] + [tok.eos_token_id]
    return {{"input_ids": p + a, "labels": [-100] * len(p) + a}}
"""


@pytest.mark.parametrize(
    ("header", "answer", "found"),
    [
        ("", 'm[-1]["content"]', True),
        (", add_generation_prompt=True", 'm[-1]["content"]', False),
        ("", '"<|im_start|>assistant\\n" + m[-1]["content"]', False),
    ],
)
def test_ids_of_an_answer_behind_a_prompt_without_header(tmp_path: Path, header: str, answer: str, found: bool) -> None:
    text = HEADED.format(header=header, answer=answer)
    assert bool(codes(tmp_path, {"train.py": text}, "MSK059")) is found


WHERE = """from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
def encode(text):
    ids = tok(text)["input_ids"]
    at = text.find("### Response:")
    {count}
    return {{"input_ids": ids, "labels": [-100] * n + ids[n:]}}
"""


@pytest.mark.parametrize(
    ("count", "found"),
    [
        ('n = len(tok(text[:at])["input_ids"]) if at >= 0 else 0', True),
        ('n = len(tok(text[:at])["input_ids"]) if at != -1 else 0', True),
        ('n = len(tok(text[:at])["input_ids"]) if at >= 0 else len(ids)', False),
    ],
)
def test_nothing_masked_where_the_text_has_no_mark(tmp_path: Path, count: str, found: bool) -> None:
    assert bool(codes(tmp_path, {"train.py": WHERE.format(count=count)}, "MSK050")) is found


ENABLED = """from tokenizers import Tokenizer
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments
tok = Tokenizer.from_file("tok.json")
tok.enable_padding({how})
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
Trainer(model=model, args=TrainingArguments("out"), train_dataset=rows).train()
"""


@pytest.mark.parametrize(("how", "found"), [("length=1024, pad_id=0", True), ("pad_id=0", False), ("length=64", False)])
def test_padding_that_the_tokenizer_is_told(tmp_path: Path, how: str, found: bool) -> None:
    assert bool(codes(tmp_path, {"train.py": ENABLED.format(how=how)}, "PAD005")) is found
