"""Promise: what is planted in a real loop is found in its real trace, on the CPU."""

import time
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from dynotune.measure.traces.step import Tracer
from dynotune.profile.analysis.analyse import analyse
from dynotune.profile.analysis.findings import Findings
from dynotune.profile.records.facts import model_facts, optimizer_name, places_of
from dynotune.profile.records.record import Environment, ModelFacts, Record, TimedStep, Traced, of_plain
from tests.tiny import tiny_model


class Rows(Dataset[torch.Tensor]):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 64

    def __getitem__(self, i: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.arange(i, i + 24)


def traced_run(loading: float | None = None, reads: bool = False, fused: bool = True, precision: str = "") -> Record:
    """Three timed steps of a plain loop and a traced one."""
    model = tiny_model()
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused, foreach=False)
    made = [torch.arange(48).reshape(2, 24) for _ in range(8)]
    batches = iter(made if loading is None else DataLoader(Rows(loading), batch_size=2))

    def step(marks: Any = None) -> None:
        ids = next(batches)
        loss = model(input_ids=ids, labels=ids).loss
        if reads:
            loss.item()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    timed = []
    for number in range(1, 5):
        began = time.perf_counter()
        step()
        timed.append(TimedStep(number, time.perf_counter() - began))
    facts = of_plain(ModelFacts, model_facts(model, model, model, precision))
    tracer = Tracer(model, places_of(model, facts.head_places), torch.device("cpu"))
    with tracer.step(5) as traced:
        step()
    assert traced.events is not None
    assert traced.where is not None
    assert traced.evidence is not None
    one = Traced(5, traced.events, traced.where, facts=dict(traced.evidence.facts))
    environment = Environment("cpu", loader_workers=0)
    return Record("torch", tuple(timed[1:]), (one,), environment, facts, optimizer=optimizer_name(optimizer))


def profile(**planted: Any) -> Findings:
    return analyse(traced_run(**planted))


def names(findings: Findings) -> set[str]:
    return {one.name for one in findings.found}


def test_a_clean_loop_is_clean() -> None:
    found = profile()
    assert found.clean, [one.sentence for one in found.found]
    assert sum(row.seconds for row in found.rows) == pytest.approx(found.step_seconds)


def test_a_slow_loader() -> None:
    found = profile(loading=0.05)
    assert found.found[0].name == "slow-loader"
    assert "0 workers" in found.found[0].sentence
    assert found.found[0].seconds > 0.095  # two rows of 0.05 s; a busy host adds to them


def test_a_value_read_in_the_loop() -> None:
    assert "host-reads" in names(profile(reads=True))


def test_an_optimizer_in_a_loop() -> None:
    """In one of some profiles: a step that a busy host held up has little of it."""
    assert any("unfused-optimizer" in names(profile(fused=False)) for _ in range(20))


def test_products_in_float32() -> None:
    assert "full-precision-products" in names(profile(precision="bfloat16"))
