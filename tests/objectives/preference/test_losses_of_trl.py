"""Promise: every preference loss that TRL has is TRL's: value, gradient of every token, and what is logged of it."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dynotune.config.checking.preference import OF_THE_MARGIN, SMOOTHING, SORTING
from dynotune.config.fates.names import DPO_LOSSES
from dynotune.config.keys.preference import PREFERENCE_LOSSES, PreferenceConfig
from dynotune.objectives.preference.groups import token_shares
from dynotune.objectives.preference.logged import OF_PAIRS, Counts, Predictions
from dynotune.objectives.preference.losses import LOSSES
from dynotune.objectives.preference.objective import PreferenceObjective
from dynotune.objectives.preference.pairs import Need, Pairs
from tests.objectives.preference.trl_arithmetic import Tokens, trl_loss

pytest.importorskip("trl", reason="the losses are tested against the installed TRL")

CHOSEN, REJECTED = [5, 1, 9, 4, 6], [3, 7, 9, 2, 1]
SETTINGS: dict[str, Any] = {"label_smoothing": 0.2, "beta": 0.3}
TRL_LOSSES = sorted(DPO_LOSSES)


def drawn(**settings: Any) -> Tokens:
    return Tokens.drawn(CHOSEN + REJECTED, seed=11, **settings)


def pairs_of(tokens: Tokens) -> Pairs:
    """All pairs as one group, which is a batch of TRL's."""
    chosen, rejected = tokens.side(first=True), tokens.side(first=False)
    shares = torch.from_numpy(token_shares(chosen.lengths_P.numpy(), len(chosen.lengths_P)))
    return Pairs(chosen, rejected, groups=(len(shares),), token_shares_P=shares.to(chosen.logps_P.dtype))


def ours(tokens: Tokens, settings: dict[str, Any]) -> Tensor:
    """The mean over the pairs."""
    return PreferenceObjective(PreferenceConfig(**settings)).losses(pairs_of(tokens)).mean()


def assert_same(tokens: Tokens, settings: dict[str, Any], tolerance: float = 1e-10) -> None:
    theirs, _ = trl_loss(tokens, settings)
    loss = ours(tokens, settings)
    # The weight of EXO's label is a float32 in TRL, whatever the precision of the rest.
    tolerance = 1e-6 if "exo_pair" in settings["loss_type"] else tolerance
    torch.testing.assert_close(loss, theirs, rtol=tolerance, atol=tolerance)
    for mine, other in zip(
        torch.autograd.grad(loss, tokens.logps), torch.autograd.grad(theirs, tokens.logps), strict=True
    ):
        assert other.any()
        # Where there is no label the head gives TRL zeros, whose gradient goes nowhere.
        mine, other = mine * tokens.mask[:, 1:], other * tokens.mask[:, 1:]
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)


def test_there_is_every_loss_of_trl() -> None:
    from trl import DPOConfig

    text = DPOConfig.__dataclass_fields__["loss_type"].metadata["help"]
    named = {word for word in text.split("`'")[1:] for word in [word.partition("'")[0]]}
    assert named == DPO_LOSSES
    assert set(PREFERENCE_LOSSES) == set(LOSSES) == DPO_LOSSES | {"dpo_norm", "simpo", "orpo", "cpo"}


@pytest.mark.parametrize("loss", TRL_LOSSES)
def test_value_and_gradient(loss: str) -> None:
    assert_same(drawn(), {"loss_type": [loss], **SETTINGS})


@pytest.mark.parametrize("loss", TRL_LOSSES)
def test_in_float32_at_margins_of_hundreds_of_nats(loss: str) -> None:
    tokens = drawn(dtype=torch.float32, scale=60.0)
    # Where TRL's DiscoPOP is 0 x infinity, ours is its limit: `test_extremes.py`.
    assert_same(tokens, {"loss_type": [loss], "label_smoothing": 0.2, "beta": 0.1}, tolerance=2e-5)


@pytest.mark.parametrize("divergence", ["forward_kl", "js_divergence", "alpha_divergence"])
@pytest.mark.parametrize("loss", sorted(OF_THE_MARGIN & DPO_LOSSES))
def test_divergences(loss: str, divergence: str) -> None:
    settings = {"loss_type": [loss], "f_divergence_type": divergence, "f_alpha_divergence_coef": 0.7, **SETTINGS}
    tokens = drawn(dtype=torch.float32) if divergence == "alpha_divergence" else drawn()  # TRL's alpha has no float64
    assert_same(tokens, settings, tolerance=1e-5 if divergence == "alpha_divergence" else 1e-10)


def test_an_alpha_of_one_is_reverse_kl() -> None:
    alpha = {"f_divergence_type": "alpha_divergence", "f_alpha_divergence_coef": 1.0, **SETTINGS}
    assert_same(drawn(), {"loss_type": ["sigmoid"], **alpha})
    assert ours(drawn(), alpha) == ours(drawn(), SETTINGS)


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("loss", TRL_LOSSES)
def test_length_desensitised(loss: str, alpha: float) -> None:
    assert_same(drawn(), {"loss_type": [loss], "ld_alpha": alpha, **SETTINGS})


@pytest.mark.parametrize("loss", [name for name in TRL_LOSSES if name not in SORTING | {"sft"}])
def test_weighted_by_the_policy(loss: str) -> None:
    settings = {"loss_type": [loss], "use_weighting": True, **SETTINGS}
    tokens = drawn()
    if loss != "hinge":
        assert_same(tokens, settings)
        return
    # TRL multiplies in place what the gradient of relu is made from: its backward pass fails.
    theirs, _ = trl_loss(tokens, settings)
    loss_P = ours(tokens, settings)
    torch.testing.assert_close(loss_P, theirs)
    with pytest.raises(RuntimeError, match="inplace operation"):
        torch.autograd.grad(theirs, tokens.logps)
    assert torch.autograd.grad(loss_P, tokens.logps)[0].isfinite().all()


def test_mixtures() -> None:
    """MPO, and DPO with an anchor of likelihood, which TRL writes as a mixture."""
    mpo = {"loss_type": ["sigmoid", "bco_pair", "sft"], "loss_weights": [0.8, 0.2, 1.0], **SETTINGS}
    assert_same(drawn(), mpo)
    assert_same(drawn(), {"loss_type": ["sigmoid", "sft"], "ld_alpha": 0.3, **SETTINGS})
    assert_same(drawn(), {"loss_type": ["aot", "hinge"], "loss_weights": [0.5, -0.25], **SETTINGS})
    assert abs(ours(drawn(), mpo) - ours(drawn(), {**mpo, "loss_weights": [1.0, 1.0, 1.0]})) > 1e-3


@pytest.mark.parametrize("loss", TRL_LOSSES)
def test_a_mistake_would_show(loss: str) -> None:
    """Negative control: another beta, exchanged sides, another smoothing and no reference are all far from TRL's."""
    tokens, settings = drawn(), {"loss_type": [loss], **SETTINGS}
    theirs = trl_loss(tokens, settings)[0].item()
    pairs = pairs_of(tokens)

    def differs(pairs: Pairs = pairs, **changes: Any) -> bool:
        changed = PreferenceObjective(PreferenceConfig(**{**settings, **changes})).losses(pairs).mean()
        return abs(float(changed) - theirs) > 1e-4

    exchanged = Pairs(pairs.rejected, pairs.chosen, pairs.groups, pairs.token_shares_P)
    assert differs(exchanged)
    assert differs(beta=0.15) is (loss != "sft")
    assert differs(label_smoothing=0.1) is (loss in SMOOTHING)
    assert (Need.REFERENCE in LOSSES[loss].needs) is (loss != "sft")


def test_what_is_logged_is_what_trl_logs() -> None:
    tokens = drawn()
    mask, half = tokens.mask[:, 1:], len(CHOSEN)
    values = [(x * mask).sum(1) for x in (tokens.mean_logits, tokens.entropy, tokens.top1)]
    predictions = Predictions(*(x[:half] for x in values)), Predictions(*(x[half:] for x in values))
    for settings in (SETTINGS, {**SETTINGS, "ld_alpha": 0.5}):
        _, theirs = trl_loss(tokens, settings)
        objective = PreferenceObjective(PreferenceConfig(**settings))
        _, sums = objective(pairs_of(tokens), predictions)
        counts = Counts(half, sum(CHOSEN), sum(REJECTED))
        logged = {
            name: float(total) / counts.of(over)
            for (name, over), total in zip(objective.sums.items(), sums, strict=True)
        }
        theirs.pop("num_tokens")
        assert set(logged) == set(theirs)
        for name, value in logged.items():
            assert value == pytest.approx(theirs[name], rel=1e-6), name
        assert logged["rewards/chosen"] != pytest.approx(logged["rewards/rejected"])


def test_without_predictions_only_pairs_are_logged() -> None:
    objective = PreferenceObjective(PreferenceConfig(), predictions=False)
    _, sums = objective(pairs_of(drawn()))
    assert list(objective.sums) == list(OF_PAIRS)
    assert sums.shape == (6,)
    assert not sums.requires_grad


@pytest.mark.parametrize("loss", PREFERENCE_LOSSES)
def test_any_micro_batching_gives_the_same_loss(loss: str) -> None:
    """Groups of two pairs, of which TRL makes batches of their own: together, apart, and cut where nothing is sorted."""
    settings = {"loss_type": [loss], **SETTINGS}
    objective = PreferenceObjective(PreferenceConfig(**settings))
    lengths_P = np.array([5, 1, 9, 4])
    tokens = Tokens.drawn([*lengths_P, 3, 7, 9, 2], seed=3)
    shares = torch.from_numpy(token_shares(lengths_P, 2))

    def loss_of(*parts: slice) -> float:
        return sum(float(objective.losses(_part(tokens, shares, part)).sum()) for part in parts)

    whole = loss_of(slice(0, 4))
    assert loss_of(slice(0, 2), slice(2, 4)) == pytest.approx(whole, rel=1e-12)
    if loss not in SORTING:
        assert loss_of(slice(0, 1), slice(1, 4)) == pytest.approx(whole, rel=1e-12)
    if loss in DPO_LOSSES:
        batches = [_rows(tokens, [0, 1, 4, 5]), _rows(tokens, [2, 3, 6, 7])]
        theirs = sum(float(trl_loss(batch, settings)[0].detach()) for batch in batches) / 2
        assert whole / 4 == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("loss", sorted(SORTING))
def test_groups_that_are_not_kept_would_show(loss: str) -> None:
    """Negative control: sorted over the whole step instead of each group, the loss is another one."""
    objective = PreferenceObjective(PreferenceConfig(loss_type=[loss]))
    tokens = Tokens.drawn([5, 1, 9, 4, 3, 7, 9, 2], seed=4, scale=9.0)
    kept = Pairs(tokens.side(first=True), tokens.side(first=False), groups=(2, 2))
    merged = Pairs(kept.chosen, kept.rejected, groups=(4,))
    assert abs(float(objective.losses(kept).sum() - objective.losses(merged).sum())) > 1e-3


def _rows(tokens: Tokens, rows: list[int]) -> Tokens:
    return Tokens(**{name: getattr(tokens, name)[rows] for name in Tokens.__dataclass_fields__})


def _part(tokens: Tokens, shares: Tensor, part: slice) -> Pairs:
    rows = list(range(4))[part]
    some = _rows(tokens, rows + [row + 4 for row in rows])
    groups = (2,) * (len(rows) // 2) if len(rows) % 2 == 0 else None
    return Pairs(some.side(first=True), some.side(first=False), groups, shares[part])
