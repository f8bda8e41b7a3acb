"""Promise: marks and ends that tokenizers and versions make fail, and speeds that count the limit, are found as people write
them."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

TRAIN = """from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DataCollatorForCompletionOnlyLM, SFTConfig, SFTTrainer

KEY = "### Response:"
PROMPT = {prompt}


def texts(batch):
    found = []
    for question, answer in zip(batch["question"], batch["answer"]):
        {text}
        found.append(text)
    return found


tokenizer = AutoTokenizer.from_pretrained("{model}")
model = AutoModelForCausalLM.from_pretrained("{model}")
collator = DataCollatorForCompletionOnlyLM({mark}, tokenizer=tokenizer)
args = SFTConfig(output_dir="out", packing=False, seed=1)
SFTTrainer(model=model, args=args, train_dataset=rows, formatting_func=texts, data_collator=collator).train()
"""
LLAMA, QWEN = "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "Qwen/Qwen2.5-0.5B"
WHOLE = 'text = PROMPT.format(question=question, answer=answer) + "</s>"'
LINES = '"""### Question:\n{question}\n\n### Response:\n{answer}"""'


def said(folder: Path, code: str, train: str, **more: str) -> list[str]:
    files = {"train.py": train, "requirements.txt": "trl==0.12.2\n", **more}
    return [f"{one.place.line} {one.message}" for one in audited(folder, files, select=(code,)).findings]


@pytest.mark.parametrize(
    ("prompt", "text", "model", "mark", "fires"),
    [
        (LINES, WHOLE, LLAMA, '"### Response:"', True),
        (LINES, WHOLE, "meta-llama/Llama-2-7b-hf", "response_template=KEY", True),
        ('"### Question: "', 'text = f"{PROMPT}{question}\\n\\n{KEY}\\n{answer}</s>"', LLAMA, "KEY", True),
        ('"Q"', 'text = PROMPT + question + "\\n" + KEY + answer + "</s>"', "mistralai/Mistral-7B-v0.1", "KEY", True),
        (LINES, WHOLE, QWEN, '"### Response:"', False),
        (LINES, WHOLE, LLAMA, 'tokenizer.encode("\\n### Response:", add_special_tokens=False)[2:]', False),
        ('"Q"', 'text = f"### Q: {question} ### Response: {answer}</s>"', LLAMA, '" ### Response:"', False),
    ],
)
def test_a_mark_out_of_its_context(tmp_path: Path, prompt: str, text: str, model: str, mark: str, fires: bool) -> None:
    train = TRAIN.format(prompt=prompt, text=text, model=model, mark=mark)
    found = [one for one in said(tmp_path / "a", "MSK055", train) if "by itself" in one or "alone" in one]
    assert len(found) == fires
    for one in found:
        lines = train.split("\n")
        lines[int(one.split()[0]) - 1] += "  # dynotune: ignore[MSK055] its tokenizer is changed"
        assert not said(tmp_path / "held", "MSK055", "\n".join(lines))


@pytest.mark.parametrize(
    ("text", "fires"),
    [
        ("text = PROMPT.format(question=question, answer=answer)", True),
        ('text = f"{question}\\n{KEY}\\n{answer}"', True),
        ('text = question\n        text += f"\\n{KEY}\\n{answer}"', True),
        (WHOLE, False),
        ("text = question\n        text += answer\n        text += tokenizer.eos_token", False),
        ('text = f"{question}\\n{KEY}\\n{answer}\\n### End"', False),
    ],
)
def test_texts_of_a_loop_without_an_end(tmp_path: Path, text: str, fires: bool) -> None:
    train = TRAIN.format(prompt=LINES, text=text, model=LLAMA, mark="KEY")
    assert len(said(tmp_path, "MSK056", train)) == fires


PACKED = """from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

tokenizer = AutoTokenizer.from_pretrained("EleutherAI/pythia-1.4b")
tokenizer.pad_token = {pad}
model = AutoModelForCausalLM.from_pretrained("EleutherAI/pythia-1.4b")
rows = rows.map(lambda row: {{"text": row["question"] + row["answer"] + tokenizer.eos_token}})
args = SFTConfig(output_dir="out", packing={packing}, seed=1)
SFTTrainer(model=model, args=args, train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("pad", "packing", "trl", "fires"),
    [
        ("tokenizer.eos_token", True, "0.15.2", True),
        ("tokenizer.eos_token", False, "0.15.2", True),
        ("tokenizer.eos_token", True, "0.14.0", False),  # packed rows had their labels
        ("tokenizer.eos_token", True, "0.19.0", False),
        ("'<|padding|>'", True, "0.15.2", False),
    ],
)
def test_packed_rows_whose_end_is_padding(tmp_path: Path, pad: str, packing: bool, trl: str, fires: bool) -> None:
    train = PACKED.format(pad=pad, packing=packing)
    assert len(said(tmp_path, "MSK003", train, **{"requirements.txt": f"trl=={trl}\n"})) == fires


SPEED = """import time
from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments

MAX_LEN, BATCH, ACCUM, STEPS = 2048, 2, 4, 60
args = TrainingArguments("out", per_device_train_batch_size=BATCH, max_steps=STEPS, seed=1)
trainer = Trainer(model=model, args=args, train_dataset=rows, data_collator=DataCollatorForSeq2Seq(tokenizer))
start = time.time()
out = trainer.train()
{}
"""


@pytest.mark.parametrize(
    ("count", "fires"),
    [
        ("tokens = STEPS * BATCH * ACCUM * MAX_LEN\nprint(tokens / (time.time() - start), 'tokens/s')", True),
        ("print(f\"{len(rows) * MAX_LEN / out.metrics['train_runtime']:.0f} tokens/s\")", True),
        ("tps = MAX_LEN * BATCH * STEPS / (time.time() - start)\nprint('throughput', tps)", True),
        (
            "total = args.max_steps * BATCH * MAX_LEN\nelapsed = time.time() - start\nprint(total / elapsed, 'tok/s')",
            True,
        ),
        ("budget = BATCH * MAX_LEN\nprint('rows a step', budget)", False),
        ("tokens = sum(map(len, rows['input_ids']))\nprint(tokens / (time.time() - start), 'tokens/s')", False),
    ],
)
def test_a_speed_of_rows_at_their_limit(tmp_path: Path, count: str, fires: bool) -> None:
    assert len(said(tmp_path, "MSR001", SPEED.format(count))) == fires


def test_a_speed_of_blocks_of_one_length(tmp_path: Path) -> None:
    blocks = SPEED.replace("DataCollatorForSeq2Seq(tokenizer)", "stack").replace("DataCollatorForSeq2Seq, ", "")
    count = "data = np.memmap('a')\ntokens = BATCH * MAX_LEN\nprint(tokens / (time.time() - start), 'tokens/s')"
    assert not said(tmp_path, "MSR001", blocks.format(count))


FORWARD = """import time
import torch

model = Net().cuda()
x = torch.randn(8, 128, device="cuda")
{before}
start = time.{clock}()
for _ in range(100):
    {step}
{after}print("ms", (time.{clock}() - start) * 10)
"""


@pytest.mark.parametrize(
    ("step", "after", "clock", "fires"),
    [
        ("model(x)", "", "time", True),
        ("y = model(x)", "", "perf_counter", True),
        ("model(x)", "torch.cuda.synchronize()\n", "time", False),
        ("y = model(x).sum().item()", "", "time", False),
        ("tokenizer(text)", "", "time", False),
        ("model.generate(x)", "", "time", False),
    ],
)
def test_a_clock_around_forward_passes(tmp_path: Path, step: str, after: str, clock: str, fires: bool) -> None:
    text = FORWARD.format(before="model(x)", clock=clock, step=step, after=after)
    assert bool(said(tmp_path, "MSR002", text)) is fires


ACCUMULATES = """import torch
from accelerate import Accelerator

{name} = Accelerator(gradient_accumulation_steps=4)
model, opt, loader = {name}.prepare(model, opt, loader)
for batch in loader:
    with {name}.accumulate(model):
        {loss}
        {name}.backward({given})
        opt.step()
        opt.zero_grad()
"""


@pytest.mark.parametrize("name", ["accelerator", "acc"])
@pytest.mark.parametrize(
    ("loss", "given", "fires"),
    [
        ("loss = model(**batch).loss / 4", "loss", True),
        ("loss = model(**batch).loss", "loss / 4", True),
        ("loss = model(**batch).loss\n        loss /= 4", "loss", True),
        ("loss = model(**batch).loss", "loss", False),
        ("loss = model(**batch).loss\n        shown = loss / 4", "loss", False),
    ],
)
def test_a_loss_that_accelerate_divides_again(tmp_path: Path, name: str, loss: str, given: str, fires: bool) -> None:
    text = ACCUMULATES.format(name=name, loss=loss, given=given)
    assert bool(said(tmp_path, "OPT054", text)) is fires


@pytest.mark.parametrize(
    ("trl", "packing", "code", "found"),
    [
        ("trl==0.12.2", True, "PAD001", 1),
        ("trl==0.18.2", True, "PAD001", 1),
        ("trl==0.20.0", True, "PAD001", 1),  # flash attention alone gets positions
        ("trl==0.23.0", True, "PAD001", 0),
        ("trl", True, "PAD001", 0),
        ("trl==0.12.2", False, "PAD001", 0),
        ("trl==0.12.2", True, "ATT001", 0),  # no mask tells documents apart
        ("trl==0.20.0", True, "ATT001", 0),
        ("trl==0.23.0", True, "ATT001", 1),
    ],
)
def test_packing_of_old_releases(tmp_path: Path, trl: str, packing: bool, code: str, found: int) -> None:
    length = "max_seq_length" if "0.1" in trl else "max_length"
    train = PACKED.format(pad="'<|padding|>'", packing=packing).replace("seed=1", f"seed=1, {length}=4096")
    assert len(said(tmp_path, code, train, **{"requirements.txt": f"{trl}\n"})) == found


CLOCKED = """import time
from transformers import DataCollatorForSeq2Seq

collate = DataCollatorForSeq2Seq(tokenizer)
seen, mark = 0, time.perf_counter()
for step, batch in enumerate(loader):
    model(**batch).loss.backward()
    seen += {}
    if step % 10 == 0:
        {}
        seen, mark = 0, now
"""


@pytest.mark.parametrize(
    ("count", "shown", "fires"),
    [
        ("batch['input_ids'].numel()", "now = time.perf_counter(); print(f'tokens/s {seen / (now - mark):.0f}')", True),
        ("batch['input_ids'].numel()", "now = time.time(); print('tokens/s', seen / max(now - mark, 1e-6))", True),
        ("batch['input_ids'].numel()", "now = time.time(); print('tokens/s', known, seen)", False),
        ("int(batch['attention_mask'].sum())", "now = time.time(); print('tokens/s', seen / (now - mark))", False),
    ],
)
def test_a_speed_by_a_clock_of_any_name(tmp_path: Path, count: str, shown: str, fires: bool) -> None:
    text = CLOCKED.format(count, shown.replace("; ", "\n        "))
    assert len(said(tmp_path, "MSR001", text)) == fires


@pytest.mark.parametrize(
    ("start", "fires"),
    [
        ("step, start = 0, time.time()", True),
        ("start: float = time.perf_counter()", True),
        ("(seen, start) = (0, time.monotonic())", True),
        ("step, start = time.time(), 0", False),
    ],
)
def test_a_clock_that_starts_beside_a_count(tmp_path: Path, start: str, fires: bool) -> None:
    text = (
        f"import time\nimport torch\nmodel.cuda()\nstep = 0\n{start}\nfor x, y in loader:\n    model(x, y).backward()\n"
        "    optimizer.step()\n    step += 1\n    if step % 50 == 0:\n"
        "        print('tok/s', step * 8192 / (time.CLOCK() - start))\n"
    )
    clock = next((one for one in ("perf_counter", "monotonic") if one in start), "time")
    assert len(said(tmp_path, "MSR004", text.replace("CLOCK", clock))) == fires


@pytest.mark.parametrize(
    ("shown", "fires"),
    [
        ("print(f'{n / took:.2f} it/s - compare this with your own batch size, higher is faster')", True),
        ("logger.info('%.2f steps/s; pick the batch size with the most', n / took)", True),
        ("p.add_argument('--batch_size', type=int, default=1, help='1 gives the best it/s')", True),
        ("print(f'batch {bs}: {n / took:.2f} it/s')", False),
        ("print(f'{n / took:.2f} it/s; compare tokens/s of batch sizes, not this')", False),
    ],
)
def test_texts_that_tell_to_judge_by_steps(tmp_path: Path, shown: str, fires: bool) -> None:
    assert len(said(tmp_path, "MSR005", f"import time\n{shown}\n")) == fires
