"""Promise: the objective asks for no more than its losses need, never makes the host wait, and takes empty micro-batches."""

import pytest
import torch
from torch import Tensor

from dynotune import ConfigError
from dynotune.config.keys.preference import PREFERENCE_LOSSES, PreferenceConfig
from dynotune.objectives.preference.logged import Counts, Over, Predictions
from dynotune.objectives.preference.losses import LOSSES
from dynotune.objectives.preference.objective import PreferenceObjective
from dynotune.objectives.preference.pairs import Answers, Need, Pairs


def made(needs: frozenset[Need], count: int, device: str) -> Pairs:
    """Pairs with nothing but what is needed."""

    def values(need: Need | None, gradient: bool = False) -> Tensor | None:
        asked = need is None or need in needs
        return torch.full((count,), -3.0, device=device, requires_grad=gradient) if asked else None

    def side() -> Answers:
        logps_P = values(None, gradient=True)
        assert logps_P is not None
        return Answers(
            logps_P,
            torch.full((count,), 5, device=device),
            values(Need.REFERENCE),
            tails_P=values(Need.TAILS, gradient=True),
            reference_tails_P=values(Need.TAILS) if Need.REFERENCE in needs else None,
            agreement_P=values(Need.AGREEMENT),
        )

    groups = (2,) * (count // 2) if Need.WHOLE_GROUPS in needs else None
    return Pairs(side(), side(), groups, values(Need.TOKEN_SHARES))


def seen(count: int, device: str) -> Predictions:
    return Predictions(*(torch.ones(count, device=device) for _ in range(3)))


def every_config() -> list[PreferenceConfig]:
    plain = [PreferenceConfig(loss_type=[name], label_smoothing=0.1) for name in PREFERENCE_LOSSES]
    divergences = ("forward_kl", "js_divergence", "alpha_divergence")
    mixed = {"loss_type": ["sigmoid", "sft"], "ld_alpha": 0.5}
    weighted = {"loss_type": ["hinge"], "use_weighting": True}
    return [
        *plain,
        *(PreferenceConfig(f_divergence_type=one) for one in divergences),
        PreferenceConfig(**mixed),
        PreferenceConfig(**weighted),
    ]


def test_sft_alone_has_the_reference_that_trl_logs_rewards_against() -> None:
    of = {
        name: PreferenceObjective(PreferenceConfig(loss_type=[name])).needs for name in ("sft", "simpo", "orpo", "cpo")
    }
    assert [name for name, needs in of.items() if Need.REFERENCE in needs] == ["sft"]


@pytest.mark.parametrize(
    "config", every_config(), ids=lambda c: f"{c.loss_type} {c.f_divergence_type} {c.use_weighting}"
)
def test_the_host_never_waits(config: PreferenceConfig) -> None:
    """Tensors without data have no values to wait for: any `.item()`, test of a tensor or boolean index would fail."""
    objective = PreferenceObjective(config)
    loss, sums = objective(made(objective.needs, 4, "meta"), (seen(4, "meta"), seen(4, "meta")))
    loss.backward()
    assert (loss.shape, sums.shape) == ((), (10,))


def test_waiting_would_show() -> None:
    """Negative control."""
    with pytest.raises((RuntimeError, NotImplementedError)):
        bool(torch.ones((), device="meta") > 0)


@pytest.mark.parametrize(
    "config", every_config(), ids=lambda c: f"{c.loss_type} {c.f_divergence_type} {c.use_weighting}"
)
def test_an_empty_micro_batch_adds_nothing(config: PreferenceConfig) -> None:
    """A rank without documents takes part."""
    objective = PreferenceObjective(config)
    pairs = made(objective.needs, 0, "cpu")
    loss, sums = objective(pairs, (seen(0, "cpu"), seen(0, "cpu")))
    loss.backward()
    assert float(loss) == 0
    assert not sums.any()
    assert pairs.chosen.logps_P.grad is not None


def test_every_need_is_a_need() -> None:
    """Negative control of `made`: without what a loss says it needs, it cannot be computed."""
    for name, loss in LOSSES.items():
        objective = PreferenceObjective(PreferenceConfig(loss_type=[name], label_smoothing=0.1))
        for need in loss.needs:
            with pytest.raises(AssertionError):
                objective.losses(made(objective.needs - {need}, 4, "cpu"))


def test_contradictions_are_refused_from_python_too() -> None:
    with pytest.raises(ConfigError, match="`label_smoothing`"):
        PreferenceObjective(PreferenceConfig(loss_type=["exo_pair"]))


def test_denominators() -> None:
    counts = Counts(pairs=4, chosen_tokens=30, rejected_tokens=10)
    assert [counts.of(over) for over in Over] == [4, 30, 10, 40]
    assert {Counts(0, 0, 0).of(over) for over in Over} == {1}
