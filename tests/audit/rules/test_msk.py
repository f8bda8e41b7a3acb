"""Promise: rules on masks and templates say what is trained that was not meant, and what is not that was."""

import ast
from pathlib import Path

import pytest

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.run import RunFacts
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.setting import Setting
from dynotune.audit.finding import AtStake, Finding
from dynotune.audit.place import Place
from tests.audit.rules.facts import a_job, findings, some_data
from tests.audit.rules.scripts import said


@pytest.mark.parametrize(
    "form", ["messages (4 rows)", "ShareGPT conversations (4 rows)", "text in the column `text` (4 rows)"]
)
def test_a_mask_for_another_format(form: str) -> None:
    data, job = some_data(format=form), a_job(completion_only_loss=True)
    (found,) = findings("MSK001", data, Project(".", [job], data=[data]))
    assert found.stake.what is AtStake.RESULT
    assert "prompts included" in found.message


def test_masks_that_fit() -> None:
    for form, key in (
        ("prompt_completion (4 rows)", "completion_only_loss"),
        ("messages (4 rows)", "assistant_only_loss"),
        ("messages (4 rows)", "packing"),
    ):
        data, job = some_data(format=form), a_job(**{key: True})
        assert not findings("MSK001", data, Project(".", [job], data=[data]))
    data, job = some_data(format="text in the column `text` (4 rows)"), a_job(assistant_only_loss=True)
    (found,) = findings("MSK001", data, Project(".", [job], data=[data]))
    assert found.stake.what is AtStake.STOPS


def test_templates() -> None:
    found = {
        "end-token-never-trained": "No end.",
        "template-strips-earlier-reasoning": "As usual.",
        "template-drops-tools": "T.",
    }
    (said,) = findings("MSK002", some_data(template={"findings": found}))
    assert said.message == "No end."
    with_tools = some_data(template={"findings": found}, ledger={"notices": {"template-drops-tools": 3}})
    assert len(findings("MSK002", with_tools)) == 2
    assert not findings("MSK002", some_data())


def script(pad: str, mlm: object = False, name: str = "transformers.DataCollatorForLanguageModeling") -> Script:
    source = f"tokenizer = 1\n{pad}\n"
    arguments = {"mlm": Setting("mlm", mlm, Place("t.py", 3))} if mlm is not None else {}
    return Script("t.py", source, ast.parse(""), [Call(name, arguments, Place("t.py", 3))], {}, {})


def test_an_end_that_is_masked() -> None:
    (found,) = findings("MSK003", script("tokenizer.pad_token = tokenizer.eos_token"))
    assert found.also == (Place("t.py", 2),)
    assert findings("MSK003", script("tok.pad_token_id = model.config.eos_token_id"))


@pytest.mark.parametrize(
    "near",
    [
        script("tokenizer.pad_token = '<pad>'"),
        script("# tokenizer.pad_token = tokenizer.eos_token"),
        script("tokenizer.pad_token = tokenizer.eos_token", mlm=True),
        script("tokenizer.pad_token = tokenizer.eos_token", mlm=None),
        script("tokenizer.pad_token = tokenizer.eos_token", name="trl.trainer.DataCollatorForLanguageModeling"),
    ],
)
def test_an_end_that_is_learned(near: Script) -> None:
    assert not findings("MSK003", near)


LOADS = "def load(AutoTokenizer):\n    tokenizer = AutoTokenizer.from_pretrained('m')\n    %s\n    return tokenizer\n"
MAIN = "from collate import Collate\nfrom load import load\ntokenizer = load()\ncollate = Collate(tokenizer)\n"
OWN = """
class Collate:
    def __call__(self, rows):
        batch = self.tokenizer.pad(rows, return_tensors="pt")
        labels = batch["input_ids"].clone()
        %s
        batch["labels"] = labels
        return batch
"""
EOS = "tokenizer.pad_token = tokenizer.eos_token"
BY_ID = "labels[labels == self.tokenizer.pad_token_id] = -100"


def own(folder: Path, pad: str, mask: str, main: str = MAIN) -> list[Finding]:
    return said("MSK003", folder, main, collate__py=OWN % mask, load__py=LOADS % pad)


@pytest.mark.parametrize(
    "mask",
    [
        BY_ID,
        "labels[batch['input_ids'] == tokenizer.pad_token_id] = -100",
        "labels = labels.masked_fill(labels == self.tokenizer.pad_token_id, -100)",
        "labels = torch.where(labels == self.tok.pad_token_id, -100, labels)",
        "labels = [-100 if t == self.tokenizer.pad_token_id else t for t in labels]",
    ],
)
def test_an_end_that_a_collator_of_ones_own_masks(mask: str, tmp_path: Path) -> None:
    (found,) = own(tmp_path, EOS, mask)
    assert found.place.file == "collate.py"
    assert found.also == (Place("load.py", 3),)


@pytest.mark.parametrize(
    ("pad", "mask", "main"),
    [
        ("tokenizer.pad_token = '<pad>'", BY_ID, MAIN),
        (EOS, "labels[batch['attention_mask'] == 0] = -100", MAIN),
        (EOS, f"{BY_ID}; labels[ends] = self.tokenizer.eos_token_id", MAIN),
        (EOS, "shown = torch.where(labels == -100, self.tokenizer.pad_token_id, labels)", MAIN),
        (EOS, BY_ID, MAIN.replace("from load import load", "from other import made as load")),
    ],
)
def test_an_end_that_a_collator_of_ones_own_keeps(pad: str, mask: str, main: str, tmp_path: Path) -> None:
    assert not own(tmp_path, pad, mask, main)


def run(*losses: object, grad: object = 0) -> RunFacts:
    return RunFacts(
        "out", "transformers", [{"step": n, "loss": loss, "grad_norm": grad} for n, loss in enumerate(losses, 1)]
    )


def test_a_run_that_learns_nothing() -> None:
    (found,) = findings("MSK004", run(2.0, 0.0, 0.0, 0.0))
    assert "3 of 4 logged steps (the first: 2)" in found.message
    (found,) = findings("MSK004", run(2.0, float("nan"), grad=1.0))
    assert "no number" in found.message
    assert findings("MSK004", run(2.0, grad="NaN"))
    for near in (run(2.0, 0.0, 0.0), run(0.0, 0.0, 0.0, grad=0.5), run(2.0, 1.0, grad=1.0), run()):
        assert not findings("MSK004", near)


_ENCODES = """
def encode(row, tok):
    text = tok.apply_chat_template(row["messages"], tokenize=False)
    return {call}
"""
_STARTS = """
from transformers import AutoTokenizer, Trainer
from templates import encode
tok = AutoTokenizer.from_pretrained("{model}"{more})
rows = rows.map(encode, fn_kwargs={{"tok": tok}})
"""


@pytest.mark.parametrize(
    ("call", "model", "more", "found"),
    [
        ("tok(text, truncation=True)", "meta-llama/Llama-3.1-8B-Instruct", "", True),
        ("tok(text=text)", "meta-llama/Llama-3.1-8B-Instruct", "", True),
        ("tok.encode_plus(text)", "meta-llama/Llama-3.1-8B-Instruct", "", True),
        ("tok(text, add_special_tokens=False)", "meta-llama/Llama-3.1-8B-Instruct", "", False),
        ("tok(text)", "meta-llama/Llama-3.1-8B-Instruct", ", add_bos_token=False", False),
        ("tok(text)", "Qwen/Qwen2.5-7B-Instruct", "", False),
    ],
)
def test_two_beginnings_in_a_file_that_names_no_model(
    tmp_path: Path, call: str, model: str, more: str, found: bool
) -> None:
    files = {"templates__py": _ENCODES.format(call=call)}
    assert bool(said("MSK053", tmp_path, _STARTS.format(model=model, more=more), **files)) is found


_MARKED = """
from transformers import AutoTokenizer
from trl import DataCollatorForCompletionOnlyLM, SFTConfig, SFTTrainer
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-1.5B-Instruct")
RESPONSE = "{mark}"
rows = rows.map(lambda row: {{"text": tok.apply_chat_template(row["messages"], tokenize=False)}})
collator = DataCollatorForCompletionOnlyLM(RESPONSE, tokenizer=tok)
"""


@pytest.mark.parametrize(
    ("mark", "found"),
    [
        ("### Response:", True),
        ("<|start_header_id|>assistant<|end_header_id|>\\n\\n", True),
        ("<|im_start|>assistant\\n", False),
    ],
)
def test_marks_of_another_template_than_the_models_own(tmp_path: Path, mark: str, found: bool) -> None:
    files = {"requirements__txt": "trl==0.15.2\n"}
    assert bool(said("MSK055", tmp_path, _MARKED.format(mark=mark), **files)) is found
