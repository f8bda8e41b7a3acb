"""Promise: costly or wrong losses, precision and compilation are found in code, and near misses are left alone."""

from pathlib import Path

import pytest

from tests.audit.rules.scripts import said

LOSS = """
import torch
import torch.nn.functional as F
from trl import SFTTrainer
class Mine(SFTTrainer):
    def compute_loss(self, model, inputs, **kwargs):
        outputs = model(**inputs)
        logits = outputs.logits
        %s
"""
PAIRS = """
import torch
for batch in loader:
    chosen = score(model(**batch))
    %s
    loss = f(chosen, reference)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
MASK = """
from trl import SFTTrainer
try:
    %s
except %s:
    %s
"""
SCALE = """
import torch
scaler = torch.amp.GradScaler(%s)
for batch in loader:
    with torch.autocast("cuda", dtype=%s):
        loss = model(**batch).loss
    scaler.scale(loss).backward()
"""
CHECKPOINT = "import torch\nimport torch.utils.checkpoint as c\nx = c.checkpoint(f, x%s)\n"
UNSHIFTED = """
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, Trainer
class Weighted(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        labels = inputs["labels"]
        outputs = model(**inputs)
        logits = outputs.logits.float()
        %s
"""
EACH = "F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1), reduction='none')"
UNSHIFTED_LOOP = """
import torch.nn.functional as F
from transformers import AutoModelForCausalLM
def train(model, loader):
    for batch in loader:
        logits = model(batch["input_ids"]).logits
        loss = F.cross_entropy(logits.transpose(1, 2), batch["labels"].%s)
        loss.backward()
        optimizer.step()
"""
COLLATOR = "collator = DataCollatorForCompletionOnlyLM('###', tokenizer=tokenizer)"
BOTH = f"from trl import DataCollatorForCompletionOnlyLM\n    {COLLATOR}"
FOUND = [
    ("MEM003", LOSS % "return F.cross_entropy(logits.float().view(-1, n), inputs['labels'].view(-1))"),
    ("MEM003", LOSS % "logits = outputs.logits.to(torch.float32); return f(logits)"),
    ("MEM003", LOSS % "return F.log_softmax(logits, dim=-1).gather(-1, labels)"),
    ("DPO001", PAIRS % "with torch.no_grad(): reference = score(ref_model(**batch))"),
    ("DPO001", PAIRS % "with torch.inference_mode(): reference = score(reference_model(**batch))"),
    ("DPO001", PAIRS % "with torch.no_grad(): reference = score(ref, batch['chosen'])"),
    ("MSK050", MASK % (COLLATOR, "Exception", "collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)")),
    ("MSK050", MASK % ("trainer = train_on_responses_only(trainer)", "Exception as error", "print(error)")),
    ("MSK050", MASK % ("from trl import DataCollatorForCompletionOnlyLM as Only", "ImportError", "Only = None")
     + "collator = Only('###') if Only is not None else None\n"),
    ("MSK050", MASK % (BOTH, "ImportError", "collator = None")),
    ("MSK051", UNSHIFTED % f"return {EACH}.mean()"),
    ("MSK051", UNSHIFTED % f"return ({EACH}.view(labels.shape) * inputs['weights']).sum()"),
    ("MSK051", UNSHIFTED_LOOP.replace(".%s", "")),
    ("PRC009", SCALE % ("'cuda'", "torch.bfloat16")),
    ("PRC009", (SCALE % ("", "torch.bfloat16")).replace("torch.amp.GradScaler", "torch.cuda.amp.GradScaler")),
    ("MEM002", CHECKPOINT % ""),
    ("MEM002", "from torch.utils.checkpoint import checkpoint_sequential as s\ny = s(layers, 2, x)\n"),
]  # fmt: skip
LEFT = [
    ("MEM003", LOSS % "return outputs.loss"),
    ("MEM003", LOSS % "return F.cross_entropy(logits[mask].float(), labels)"),
    ("MEM003", LOSS % "return outputs.loss + router_logits.float().mean()"),
    ("MEM003", (LOSS % "return f(logits.float())").replace("compute_loss", "prediction_step")),
    ("MEM003", "num_labels = 2\n" + LOSS % "return f(logits.float())"),
    ("DPO001", PAIRS % "reference = batch['reference']"),
    ("DPO001", PAIRS % "reference = score(ref_model(**batch))"),  # it learns, or so it seems
    (
        "DPO001",
        PAIRS % "with torch.no_grad(): reference = batch['r']; answers = model.generate(**batch); ref_model(answers)",
    ),
    ("DPO001", PAIRS % "with torch.no_grad(): reference = score(model, batch['chosen'])"),
    ("DPO001", (PAIRS % "with torch.no_grad(): reference = score(ref_model(**batch))").replace("chosen", "student")),
    ("MSK050", MASK % (COLLATOR, "Exception", "raise")),
    ("MSK050", MASK % (COLLATOR, "ImportError as error", "raise SystemExit(error)")),
    (
        "MSK050",
        MASK
        % ("from trl import DataCollatorForCompletionOnlyLM", "ImportError", "DataCollatorForCompletionOnlyLM = None"),
    ),
    ("MSK050", MASK % ("rows = load()", "OSError", "rows = None")),
    ("MSK050", MASK % (COLLATOR, "Exception", "trainer = train_on_responses_only(trainer)")),
    (
        "MSK050",
        MASK % (BOTH, "ImportError", "collator = None") + "if collator is None: raise SystemExit('no masking')\n",
    ),
    ("MSK050", MASK % (BOTH, "ImportError", "collator = None") + "assert collator is not None\n"),
    ("MSK050", MASK % (BOTH, "ImportError", "masked = None")),
    ("MSK051", UNSHIFTED % f"logits, labels = logits[:, :-1], labels[:, 1:]; return {EACH}.mean()"),
    ("MSK051", UNSHIFTED % f"labels = labels.roll(-1, 1); return {EACH}.mean()"),
    ("MSK051", (UNSHIFTED % f"return {EACH}.mean()").replace("AutoModelForCausalLM", "AutoModelForSeq2SeqLM")),
    (
        "MSK051",
        (UNSHIFTED % f"return {EACH}.mean()").replace("AutoModelForCausalLM", "AutoModelForTokenClassification"),
    ),
    ("MSK051", (UNSHIFTED % f"return {EACH}.mean()").replace("labels.view(-1)", "inputs['targets'].view(-1)")),
    ("MSK051", UNSHIFTED % "return outputs.loss"),
    ("MSK051", (UNSHIFTED % f"return {EACH}.mean()").replace("compute_loss", "score")),
    (
        "MSK051",
        "def collate(rows):\n    return {'ids': [r[:-1] for r in rows], 'labels': [r[1:] for r in rows]}\n"
        + UNSHIFTED_LOOP.replace(".%s", ""),
    ),
    ("PRC009", SCALE % ("'cuda'", "torch.float16")),
    ("PRC009", SCALE % ("enabled=half", "torch.bfloat16")),
    ("PRC009", SCALE % ("'cuda'", "kind")),
    ("MEM002", CHECKPOINT % ", use_reentrant=False"),
    ("MEM002", CHECKPOINT % ", **options"),
    ("MEM002", "def checkpoint(x):\n    return x\ncheckpoint(1)\n"),
]


@pytest.mark.parametrize(("code", "text"), FOUND)
def test_found(code: str, text: str, tmp_path: Path) -> None:
    assert len(said(code, tmp_path, text)) == 1


@pytest.mark.parametrize(("code", "text"), LEFT)
def test_left_alone(code: str, text: str, tmp_path: Path) -> None:
    assert not said(code, tmp_path, text)
