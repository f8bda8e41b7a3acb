"""Promise: whatever a configuration holds where a rule looks, the rule says something or nothing, and never fails."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from dynotune.audit import facts
from dynotune.audit import rules as room
from dynotune.audit.facts.job import Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.run import RunFacts
from dynotune.audit.finding import Finding, NotChecked, severity
from dynotune.audit.registry import rules
from dynotune.audit.rule import Subject
from tests.audit.rules.facts import UNKNOWN, Default, a_job, a_machine, some_data

_ASKED = re.compile(r'(?:get|setting|number|is_false|is_given|given)\((?:job, )?"([a-z_0-9]+)"')

NAMES = sorted(
    {
        name
        for folder in (*room.__path__, *facts.__path__)
        for path in Path(folder).glob("*.py")
        for name in _ASKED.findall(path.read_text(encoding="utf-8"))
    }
)
ODD: list[Any] = [
    None, True, False, 0, 1, 2, -1, 4096, 10**20, 0.0, 1e-5, 0.5, 1e300, float("inf"), float("nan"), "", "no", "auto",
    "steps", "1e-5", "bfloat16", "float16", "float32", "flash_attention_2", "sdpa", "eager", "wrapped", "adamw_torch",
    "all-linear", "Qwen/Qwen2.5-0.5B", "EleutherAI/pythia-70m", "../..", "x" * 500, [], ["q_proj", "c_attn"], [1, None], {},
    {"use_reentrant": True}, {"use_reentrant": [1]}, UNKNOWN,
]  # fmt: skip

USUAL: dict[str, Any] = {
    "model_name_or_path": "Qwen/Qwen2.5-0.5B",
    "dataset_name": "a.jsonl",
    "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 8,
    "max_length": 512,
    "learning_rate": 1e-5,
    "optim": "adamw_torch",
    "use_peft": False,
    "packing": True,
    "gradient_checkpointing": True,
    "num_train_epochs": 3,
    "max_steps": -1,
    "bf16": False,
    "fp16": False,
    "dtype": "float32",
    "num_processes": 2,
    "save_steps": 10,
    "output_dir": "out",
}

values = some.one_of(some.sampled_from(ODD), some.sampled_from(ODD).map(Default))
jobs = some.builds(
    lambda trainer, method, held, keys: a_job(trainer, method, keys=keys, versions={"trl": "1.16.0"}, **USUAL | held),
    some.sampled_from(list(Trainer)),
    some.sampled_from([*Method, None]),
    some.dictionaries(some.sampled_from(NAMES), values, max_size=6),
    some.dictionaries(some.sampled_from(NAMES), some.sampled_from(ODD), max_size=3),
)


def test_the_names_are_those_that_rules_ask_for() -> None:
    assert {"packing", "learning_rate", "neat_packing", "attn_implementation", "dataset_name"} <= set(NAMES)


@pytest.mark.parametrize("subject", [Subject.JOB, Subject.ENVIRONMENT, Subject.DATA, Subject.PROJECT, Subject.RUN])
@settings(max_examples=60, deadline=None)
@given(several=some.lists(jobs, min_size=1, max_size=2), lengths=some.lists(some.integers(0, 10**6), max_size=40))
def test_no_value_makes_a_rule_fail(subject: Subject, several: list[Any], lengths: list[int]) -> None:
    even = lengths[: len(lengths) // 2 * 2]
    data = [some_data("a.jsonl", lengths=lengths, first_labels=lengths, contents=lengths, tokenizer="t")]
    data.append(
        some_data("test.jsonl", lengths=even, per_example=2, contents=even, ledger={"notices": {}, "skipped": {}})
    )
    machine = a_machine(gpus=2, capability="7.5", wsl=True)
    rows = [{"loss": value, "grad_norm": value} for value in (0, 0.0, None, "nan", "x", [1])]
    run = RunFacts("out", "transformers", rows, files={"checkpoint-1/x": 1, "checkpoint-x/y": 0, "a/b/c": 1})
    project = Project(".", several, data=data, environment=machine, runs=[run])
    subjects: dict[Subject, list[Any]] = {
        Subject.JOB: several,
        Subject.ENVIRONMENT: [machine],
        Subject.DATA: data,
        Subject.PROJECT: [project],
        Subject.RUN: [run],
    }
    for rule in rules().values():
        if rule.subject is not subject:
            continue
        for one in subjects[subject]:
            for said in rule.check(one, project):
                assert isinstance(said, Finding | NotChecked)
                if isinstance(said, Finding):
                    assert said.message
                    assert said.message.endswith((".", "`"))
                    severity(said.stake)
