"""Promise: what stands a step further off is read as what stands at hand: taken out at once, row by row, beside another."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited
from tests.audit.rules.scripts import said

LOAD = "from datasets import load_dataset\nraw = load_dataset('acme/x', split='train')\n"
TRAIN = "\nTrainer(model, args, train_dataset={}, eval_dataset={}).train()\n"


@pytest.mark.parametrize(
    ("made", "trained", "tested", "found"),
    [
        ("dev = raw.train_test_split(0.1, seed=1)['test']", "raw", "dev", True),
        ("dev = raw.shuffle(seed=1).train_test_split(0.1)['test'].map(f)", "raw", "dev", True),
        ("dev = raw.train_test_split(test_size=99).pop('test')", "raw", "dev", True),
        ("dev = random_split(raw, [0.9, 0.1])[1]", "raw", "dev", True),
        ("dev = raw.train_test_split(0.1)['test']\nraw = raw.filter(lambda r: r not in dev)", "raw", "dev", False),
        ("raw = raw.train_test_split(0.1)['train']", "raw", "other", False),
        (
            "dev = raw.train_test_split(0.1, seed=1)['test']\nfit = raw.train_test_split(0.1, seed=1)['train']",
            "fit",
            "dev",
            False,
        ),
    ],
)
def test_a_part_that_is_taken_out_of_the_division(
    tmp_path: Path, made: str, trained: str, tested: str, found: bool
) -> None:
    assert bool(said("DAT004", tmp_path, f"{LOAD}{made}{TRAIN.format(trained, tested)}")) is found


COLLATE = """
import torch
from transformers import AutoModelForCausalLM
class Pad:
    def __call__(self, rows):
        width = max(len(p) + len(a) for p, a in rows)
        ids, mask, {0} = [], [], []
        for p, a in rows:
            gap = width - len(p) - len(a)
            ids.append(p + a + [self.pad_id] * gap)
            mask.append([1] * (width - gap) + [0] * gap)
            {1}
        return {{"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask), "labels": {2}}}
"""


@pytest.mark.parametrize(
    ("name", "line", "given", "found"),
    [
        ("labels", "labels.append([-100] * len(p) + answers(a) + [self.pad_id] * gap)", "torch.tensor(labels)", True),
        ("out", "out.append(ids_of(p) + a_ids + [PAD] * gap)", "torch.LongTensor(out)", True),
        ("labels", "labels += [p_ids + a_ids + [self.pad_token_id] * gap]", "torch.tensor(labels)", True),
        ("gold", "row = target_ids + [self.pad_id] * gap\n            gold.append(row)", "torch.tensor(gold)", True),
        ("labels", "labels.append([-100] * len(p) + a_ids + [-100] * gap)", "torch.tensor(labels)", False),
        ("kinds", "kinds.append(p_ids + [self.pad_id] * gap)", "torch.tensor(other)", False),
        ("labels", "labels.append([0] * 3)", "torch.tensor(labels)", False),
    ],
)
def test_labels_that_are_gathered_row_by_row(tmp_path: Path, name: str, line: str, given: str, found: bool) -> None:
    assert bool(said("MSK052", tmp_path, COLLATE.format(name, line, given))) is found


TIMES = """
import time
import torch
model = torch.compile(model.cuda())
spent = []
for i in range(40):
    t = time.perf_counter()
    model(**batches[i]).loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    spent.append(time.perf_counter() - t)
{}
"""


@pytest.mark.parametrize(
    ("after", "found"),
    [
        ("print('best', n / min(spent), 'mean tokens/s', n * len(spent) / sum(spent))", True),
        ("n = min(64, rows)\nprint('tokens/s', n * len(spent) / sum(spent))", True),
        ("print('best', n / min(spent), 'mean tokens/s', n * len(spent[5:]) / sum(spent[5:]))", False),
        ("print('median tokens/s', n / statistics.median(spent), 'mean', n * len(spent) / sum(spent))", False),
    ],
)
def test_a_mean_beside_the_best(tmp_path: Path, after: str, found: bool) -> None:
    assert bool(said("MSR004", tmp_path, TIMES.format(after))) is found


SFT = "stage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: a\nmodel_name_or_path: {}\ntemplate: {}\n"


@pytest.mark.parametrize(
    ("model", "template", "found"),
    [
        ("Qwen/Qwen2.5-Coder-32B-Instruct", "llama3", True),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "mistral", True),
        ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "qwen", True),
        ("Qwen/Qwen3-30B-A3B", "gemma", True),
        ("google/codegemma-7b-it", "llama3", True),
        ("Qwen/Qwen2.5-Coder-32B-Instruct", "qwen", False),
        ("meta-llama/CodeLlama-7b-Instruct-hf", "llama2", False),
        ("acme/Qwen2.5-Coder-7B-Instruct-llama3-chat", "llama3", False),
    ],
)
def test_templates_of_more_models(tmp_path: Path, model: str, template: str, found: bool) -> None:
    files = {"sft.yaml": SFT.format(model, template)}
    assert bool(audited(tmp_path, files, select=("CFG015",)).findings) is found
