"""Promise: right code that looks like what a rule speaks of is left alone, and the wrong one beside it is still said."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited
from tests.audit.rules.test_claims_in_lists_and_heads import LOOP, SHARED, TRAINED
from tests.audit.rules.test_masks_and_ends_of_rows import ANEW, ANSWERS, FULL, KEPT, SDPA, SYSTEM
from tests.audit.rules.test_words_that_a_parser_refuses import ALONE


def messages(folder: Path, files: dict[str, str], rule: str) -> list[str]:
    return [one.message for one in audited(folder, files, select=(rule,)).findings]


@pytest.mark.parametrize(
    ("head", "more", "wrong"),
    [
        ("EMA weights", "model_ema = timm.utils.ModelEmaV2(model)\n", False),
        ("EMA weights", "class WeightEMA:\n    pass\n", False),
        ("EMA weights", "schema = remaining = 1\n", True),
        ("gradient accumulation", "if step % args.grad_acc_steps == 0:\n    opt.step()\n", False),
        ("gradient accumulation", "", True),
        ("gradient clipping", "scale = 1 / torch.nn.utils.get_total_norm(grads)\n", False),
        ("early stopping", "if value < best:\n    bad = 0\nelif bad == 3:\n    break\n", False),
        ("early stopping", "best = 1\n", True),
        ("wandb", "accelerator = Accelerator(log_with='all')\n", False),
        ("DeepSpeed (run accelerate config and choose it)", "", False),
    ],
)
def test_features_by_other_names(tmp_path: Path, head: str, more: str, wrong: bool) -> None:
    more = "" if not more else f"for step in range(9):\n    {more.strip().replace(chr(10), chr(10) + '    ')}\n"
    files = {"train.py": LOOP.format(f"# Trains GPT-2 with {head}\n") + more}
    assert bool(messages(tmp_path, files, "CFG011")) is wrong


@pytest.mark.parametrize(
    ("load", "wrong"), [("torch.distributed.checkpoint.load(state)", False), ("torch.manual_seed(1)", True)]
)
def test_going_on_by_another_name(tmp_path: Path, load: str, wrong: bool) -> None:
    files = {"train.py": LOOP.format(f"{load}\n"), "README.md": "# GPT\n\n- Resumes from the latest checkpoint\n"}
    assert bool(messages(tmp_path, files, "CFG011")) is wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("Training runs on 8 A100 GPUs.", True),
        ("Training runs on 2 nodes with 2 GPUs each.", False),
        ("Training runs on 2 GPUs per node.", False),
        ("The model card of the base says: trained for 3 epochs.", False),
        ("Trained for 3 epochs.", True),
        ("Evaluation uses lm-eval with a context of 4096.", False),
        ("Rows are cut at a context of 4096.", True),
        ("With 8-bit Adam it fits on 16 GB.", False),
    ],
)
def test_sentences_of_another_thing(tmp_path: Path, text: str, wrong: bool) -> None:
    files = {"train.py": TRAINED.format(""), "run.sh": SHARED, "README.md": f"# Model\n\n{text}\n"}
    assert bool(messages(tmp_path, files, "CFG011")) is wrong


@pytest.mark.parametrize(
    ("flag", "wrong"),
    [
        ("type=int, default=4096, help='context (default: 4k)'", False),
        ("type=int, default=32, help='rows, default is 2**5'", False),
        ("type=float, default=0.1, help='warm-up (default 10%%)'", False),
        ("type=float, default=1e-4, help='default 10^-4'", False),
        ("type=int, default=1000000, help='Default: 1M'", False),
        ("type=int, default=10000, help='Default: 10_000'", False),
        ("type=int, default=32, help='rows (default 16)'", True),
        ("type=int, default=32, help='rows, default: 16 keeps memory low'", True),
    ],
)
def test_numbers_that_go_on(tmp_path: Path, flag: str, wrong: bool) -> None:
    files = {"train.py": TRAINED.format("") + ALONE.format(f"p.add_argument('--rows', {flag})\n")}
    assert any("The help says" in one for one in messages(tmp_path, files, "CFG011")) is wrong


@pytest.mark.parametrize(
    ("words", "wrong"), [("-j8", False), ("-vv", False), ("-vqj8", False), ("-x8", False), ("--j8", True)]
)
def test_flags_of_one_letter(tmp_path: Path, words: str, wrong: bool) -> None:
    adds = (
        "p.add_argument('-j', '--workers', type=int)\np.add_argument('-v', '--verbose', action='count')\n"
        "p.add_argument('-q', '--quiet', action='store_true')\np.add_argument('-x', type=int)\n"
    )
    files = {"train.py": ALONE.format(adds), "run.sh": f"python train.py {words}\n"}
    assert bool(messages(tmp_path, files, "CFG008")) is wrong


@pytest.mark.parametrize(
    ("given", "how", "wrong"),
    [
        ("mask = torch.tril(torch.ones(n, n)).bool()", "attn_mask=mask", True),
        ("mask = torch.tril(torch.ones(n, n)).bool(); mask[:, :64] = True", "attn_mask=mask", False),
        ("mask = torch.tril(torch.ones(n, n)); mask.masked_fill_(pad, 0)", "attn_mask=mask", False),
        ("pass", "attn_mask=self.mask[None, None, :n, :n]", True),
        ("pass", "attn_mask=self.mask[pad : pad + n, : pad + n]", False),
        ("pass", "attn_mask=self.mask[None, None, pad]", False),
        ("self.mask[:, :64] = True", "attn_mask=self.mask[:n, :n]", False),
    ],
)
def test_masks_that_are_more_than_causal(tmp_path: Path, given: str, how: str, wrong: bool) -> None:
    files = {"train.py": SDPA.format(given=given, how=how)}
    assert any("causal triangle" in one for one in messages(tmp_path, files, "ATT004")) is wrong


@pytest.mark.parametrize(
    ("labels", "wrong"),
    [
        ("labels[:n] = [-100] * n", True),
        ("labels = [-100 if t == tok.pad_token_id else t for t in labels]", False),
        ("labels = [t if m else -100 for t, m in zip(labels, full['attention_mask'])]", False),
    ],
)
def test_padding_that_a_collator_leaves_out_too(tmp_path: Path, labels: str, wrong: bool) -> None:
    text = ANSWERS.format(side="", padding="", **ANEW).replace("labels[:n] = [-100] * n", labels)
    assert bool(messages(tmp_path, {"train.py": text}, "MSK050")) is wrong


LEFT = 'tok.padding_side = "left"\n'


@pytest.mark.parametrize(
    ("before", "behind", "wrong"),
    [
        (LEFT, "", True),
        ("", f"def sample(text):\n    {LEFT}    return model.generate(**tok(text, return_tensors='pt'))\n", False),
        ("", f"{LEFT}print(model.generate(**tok('a', return_tensors='pt')))\n", False),
    ],
)
def test_a_side_for_generation(tmp_path: Path, before: str, behind: str, wrong: bool) -> None:
    text = ANSWERS.format(side="", padding=FULL, **KEPT).replace("def encode", f"{before}def encode") + behind
    assert bool(messages(tmp_path, {"train.py": text}, "MSK050")) is wrong


ASKED = """def ask(q):
    return client.chat.completions.create(model="m", messages=[{"role": "system", "content": "Be brief."},
        {"role": "user", "content": q}])
"""


@pytest.mark.parametrize(("role", "wrong"), [("user", False), ("system", True)])
def test_a_system_turn_for_another_model(tmp_path: Path, role: str, wrong: bool) -> None:
    text = SYSTEM.format(model="google/gemma-2-2b-it", role=role) + ASKED
    assert bool(messages(tmp_path, {"train.py": text}, "CFG015")) is wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("Trains in bf16.", True),
        ("The weights were converted to bf16 after training.", False),
        ("The released weights are bf16.", False),
    ],
)
def test_a_type_of_what_was_published(tmp_path: Path, text: str, wrong: bool) -> None:
    files = {"train.py": LOOP.format(""), "README.md": f"# GPT\n\n{text}\n"}
    assert any("computes in 16 bits" in one for one in messages(tmp_path, files, "PRC006")) is wrong


RENDERED = """from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer, clone_chat_template
tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.2-1B-Instruct")
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.2-1B-Instruct")
{}
rows = rows.map(lambda r: {{"text": tokenizer.apply_chat_template(r["messages"], tokenize=False)}})
SFTTrainer(model, args=SFTConfig("o"), train_dataset=rows, processing_class=tokenizer).train()
"""


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ("", True),
        ("model, tokenizer, _ = clone_chat_template(model, tokenizer, 'HuggingFaceTB/SmolLM3-3B')", False),
        ("tokenizer.chat_template = open('chatml.jinja').read()", False),
    ],
)
def test_texts_of_a_template_that_was_given(tmp_path: Path, given: str, wrong: bool) -> None:
    assert bool(messages(tmp_path, {"train.py": RENDERED.format(given)}, "MSK053")) is wrong
