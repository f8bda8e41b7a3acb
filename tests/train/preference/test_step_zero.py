"""Promise: before the first update each log-ratio is zero, or the run stops and names what differs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dynotune.errors import TrainingError
from dynotune.execution.pairs import PairItems
from dynotune.model.precision import Precision
from dynotune.reference.segments import paths, read, write
from dynotune.train.preference import step_zero
from dynotune.train.preference.bring import Bringing
from dynotune.train.preference.scoring import Scoring
from tests.reference.pairs import many
from tests.reference.test_compute import on_ranks
from tests.tiny import tiny_model
from tests.train.preference.beginnings import FULL, adapted, beginning, one_by_one

PAIRS = many(10, seed=8, longest=9)


LOW = Precision(torch.float32, True)


def allowed(said: str) -> float:
    """The bound that a sentence names; behind it stands how long it took, where that was long."""
    return float(said.rpartition("allowed: ")[2].partition(")")[0])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "reference"


def culprit_of(model: Any, change: Any = lambda model: None, **how: Any) -> str:
    """What is named. change: of the model, behind its examination."""
    with beginning(model, PAIRS, **how) as run:
        change(model)
        with pytest.raises(TrainingError, match="Before the first update") as caught:
            run.bring()
    return str(caught.value).partition("What differs: ")[2]


@contextmanager
def in_training(monkeypatch: pytest.MonkeyPatch, change: Any) -> Iterator[None]:
    """Do something to the run right before the training pass, when the reference is known."""
    trained = step_zero.Check._trained

    def first_change(self: Any, step: Any) -> Any:
        change(self)
        return trained(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(step_zero.Check, "_trained", first_change)
        yield


@pytest.mark.parametrize("make", [tiny_model, adapted])
@pytest.mark.parametrize("keys", [{}, {"ld_alpha": 0.5}, {"loss_type": ["aot"]}, {"gradient_accumulation_steps": 2}])
def test_a_run_that_is_right_says_how_close_it_is(make: Any, keys: dict[str, Any]) -> None:
    model = make()
    model.model.eval()  # on purpose
    modes = [module.training for module in model.modules()]
    with beginning(model, PAIRS, **keys) as run:
        said = run.bring()
    pairs = 8 if "gradient_accumulation_steps" in keys else 4
    assert said[-1].startswith(f"step 0: log-ratios of {pairs} pairs are within ")
    assert "of their log-probability (allowed: 1e-06)" in said[-1]
    assert modes == [module.training for module in model.modules()]
    assert all(p.grad is None for p in model.parameters())


def test_a_kept_value_that_is_wrong(cache: Path) -> None:
    with beginning(adapted(), PAIRS) as run:
        run.bring()
    (path,) = cache.glob("*/*.segment")
    kept = read(path)
    wrong = kept.values.copy()
    wrong[:, 1] *= 1.001
    path.unlink()
    with beginning(adapted(), PAIRS) as run:
        key = _key(run)
    write(path.parent, key, kept.made_by, kept.digests, wrong)
    said = culprit_of(adapted())
    assert said.startswith("precision. The reference computed again differs from the one that was kept")
    assert "Remove the kept values" in said
    for one in paths(path.parent):  # what it says helps
        one.unlink()
    with beginning(adapted(), PAIRS) as run:
        assert run.bring()[-1].startswith("step 0: log-ratios")


def _key(run: Any) -> Any:
    from dynotune.train.preference.identity import key_here

    return key_here(run.start.model, (), run.start.execution.site, keep_adapter=False, tails=False)


def test_other_tokens_than_the_reference_was_computed_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def other_tokens(check: Any) -> None:
        of = PairItems.of

        def changed(self: Any, batch: Any) -> Any:
            return [
                pair._replace(chosen=((pair.chosen[0] + 1) % 300, pair.chosen[1]))
                if 2 * place < len(batch.rows) else pair
                for place, pair in enumerate(of(self, batch))
            ]  # fmt: skip

        monkeypatch.setattr(PairItems, "of", changed)

    with in_training(monkeypatch, other_tokens):
        assert culprit_of(adapted()).startswith("tokens. 2 pairs were fed other tokens or masks")


def test_chosen_and_rejected_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    def exchange(check: Any) -> None:
        check.items.reference_PC[:] = check.items.reference_PC[:, ::-1].copy()

    with in_training(monkeypatch, exchange):
        assert culprit_of(adapted()).startswith("order. Chosen and rejected are exchanged")


def test_values_of_other_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    def roll(check: Any) -> None:
        first = np.flatnonzero(~np.isnan(check.items.reference_PC[:, 0]))[:4]
        check.items.reference_PC[first] = np.roll(check.items.reference_PC[first], 1, 0)

    with in_training(monkeypatch, roll):
        said = culprit_of(adapted(), train_sampling_strategy="sequential", max_steps=1)
    assert said.startswith("order. Each value of the policy is the reference's of another pair")


def test_an_adapter_that_does_not_begin_at_zero() -> None:
    said = culprit_of(adapted(init_lora_weights=False))
    assert said.startswith("weights. The adapter does not begin at zero")


def test_an_adapter_that_came_with_the_model_is_a_part_of_the_reference() -> None:
    with beginning(adapted(init_lora_weights=False), PAIRS, start={"continued_adapter": True}) as run:
        assert run.bring()[-1].startswith("step 0: log-ratios of 4 pairs are within")


def test_weights_that_changed_since(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(check: Any) -> None:
        check.model.get_base_model().model.norm.weight.data *= 1.01

    with in_training(monkeypatch, change):
        assert culprit_of(adapted()).startswith("weights. The weights changed since the reference was computed")


def test_a_kernel_that_only_training_uses() -> None:
    model = adapted()
    norm = model.get_base_model().model.norm
    norm.register_forward_hook(lambda module, args, out: out * 1.001 if module.training else None)
    said = culprit_of(model)
    assert said.startswith("precision. In evaluation the policy agrees with the reference, in training it does not")


@pytest.mark.parametrize(("precision", "apart", "stops"), [(LOW, 0.1, False), (LOW, 0.0, True), (FULL, 0.1, True)])
def test_kernels_of_the_training_pass_may_round_as_the_models_own_operations_do(
    monkeypatch: pytest.MonkeyPatch, precision: Precision, apart: float, stops: bool
) -> None:
    """Compiled layers have another graph with gradients than without. In float32 nothing of it is allowed."""
    model = adapted()
    norm = model.get_base_model().model.norm
    norm.register_forward_hook(lambda module, args, out: out * 1.01 if module.training else None)
    monkeypatch.setattr(Bringing, "_as_written", lambda self, numbers: self.score(numbers) * (1 + apart))
    with beginning(model, PAIRS, precision=precision) as run:
        if stops:
            with pytest.raises(TrainingError, match="a kernel that only the training pass uses"):
                run.bring()
        else:
            assert allowed(run.bring()[-1]) == pytest.approx(0.15)


@pytest.mark.parametrize("precision", [LOW, FULL])
def test_as_written_is_the_model_without_speed_ups(precision: Precision) -> None:
    with beginning(adapted(), PAIRS, precision=precision) as run:
        bringing = Bringing(run.config, run.start, False, print)
        numbers = np.array([7, 0, 3])
        found, right = bringing._as_written(numbers), one_by_one(run.start.model, PAIRS, numbers.tolist())
    np.testing.assert_allclose(found, right, rtol=1e-6 if precision is FULL else 3e-2)


@pytest.mark.parametrize(
    ("keys", "start", "why"),
    [
        ({"loss_type": ["simpo"], "beta": 2.0}, {}, "the loss has no reference"),
        ({}, {"resumed": True}, "the run goes on from a later step"),
        ({"neftune_noise_alpha": 5.0}, {}, "noise is added to embeddings in training (`neftune_noise_alpha`)"),
    ],
)
def test_why_it_is_not_checked_is_said_once(keys: dict[str, Any], start: dict[str, Any], why: str) -> None:
    with beginning(adapted(), PAIRS, start=start, **keys) as run:
        said = run.bring()
        assert np.isfinite(run.items.reference_PC).all()
    assert [line for line in said if line.startswith("step 0")] == [f"step 0: not checked: {why}"]


def test_dropout_is_a_reason_but_where_it_drops_zeros() -> None:
    model: Any = tiny_model()
    model.model.layers[0].mlp.act_fn = torch.nn.Sequential(torch.nn.SiLU(), torch.nn.Dropout(0.3))
    with beginning(model, PAIRS, packed_execution="on") as run:
        assert "step 0: not checked: dropout is on in training" in run.bring()[-1]
    with beginning(adapted(lora_dropout=0.5), PAIRS) as run:
        assert run.bring()[-1].startswith("step 0: log-ratios of 4 pairs are within")


def test_what_it_draws_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with beginning(adapted(lora_dropout=0.5), PAIRS) as run:
        torch.manual_seed(3)
        run.bring()
        after = torch.rand(1)
    torch.manual_seed(3)
    assert torch.rand(1) == after


def noisy(model: Any) -> None:
    """From now on it computes otherwise in other company, as low precision does."""
    norm = next(module for name, module in model.named_modules() if name.endswith("model.norm"))
    norm.register_forward_hook(lambda module, args, out: out * (1 + 1e-3 * torch.sin(1e3 * out.mean())))


def test_in_low_precision_the_bound_is_measured() -> None:
    with beginning(tiny_model(), PAIRS, precision=LOW) as run:
        noisy(run.start.model)
        said = run.bring()[-1]
    assert said.startswith("step 0: log-ratios of 4 pairs are within")
    assert 1e-5 < allowed(said) < 1e-1
    said = culprit_of(adapted(init_lora_weights=False), noisy, precision=LOW)
    assert said.startswith("weights. The adapter does not begin at zero")
    assert culprit_of(tiny_model(), noisy).startswith("precision.")  # in float32 nothing of it is allowed


def test_a_sample_that_saw_no_noise_is_not_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynotune.train.preference.bring.measured_noise", lambda score, numbers: 1e-6)
    with beginning(tiny_model(), PAIRS, precision=LOW) as run:
        noisy(run.start.model)
        said = run.bring()[-1]
    assert said.startswith("step 0: log-ratios of 4 pairs are within")
    assert allowed(said) > 1e-5


def test_memory_that_runs_out_in_it_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_out(check: Any) -> None:
        def fails(self: Any, items: Any, micro_batches: Any) -> Any:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

        monkeypatch.setattr(Scoring, "run", fails)

    trained = step_zero.Check._trained

    def first_run_out(self: Any, step: Any) -> Any:
        run_out(self)
        return trained(self, step)

    monkeypatch.setattr(step_zero.Check, "_trained", first_run_out)
    with beginning(adapted(), PAIRS) as run:
        assert "step 0: not checked: memory ran out in it" in run.bring()[-1]


def test_ranks_check_their_own_pairs_and_say_it_of_all(tmp_path: Path) -> None:
    said: dict[int, list[str]] = {}
    found: dict[int, Any] = {}
    models = [adapted(), adapted()]

    def each(ranks: Any) -> None:
        with beginning(models[ranks.rank], PAIRS, ranks=ranks, per_device_train_batch_size=3) as run:
            said[ranks.rank] = run.bring()
            found[ranks.rank] = run.items.reference_PC

    on_ranks(2, each)
    assert said[0][-1].startswith("step 0: log-ratios of 6 pairs are within")
    assert np.array_equal(found[0], found[1])
    assert not np.isnan(found[0]).any()
