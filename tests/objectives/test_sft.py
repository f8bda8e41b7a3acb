"""Promise: the losses are what their papers and transformers say, summed over label tokens only."""

import pytest
import torch
import torch.nn.functional as F

from dynotune.config.keys.objective import SFTObjectiveConfig
from dynotune.data.examples import IGNORE
from dynotune.errors import ConfigError
from dynotune.objectives.sft import SFTObjective


@pytest.fixture
def problem() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    logits_TV = torch.randn(11, 23, generator=generator, dtype=torch.float32) * 3
    labels_T = torch.randint(0, 23, (11,), generator=generator)
    labels_T[[0, 3, 4, 9]] = IGNORE
    return logits_TV.requires_grad_(), labels_T


def test_nll_is_cross_entropy_of_the_shifted_labels(problem: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits_TV, labels_T = problem
    loss, _ = SFTObjective(SFTObjectiveConfig())(logits_TV, labels_T)
    expected = F.cross_entropy(logits_TV[:-1], labels_T[1:], ignore_index=IGNORE, reduction="sum")
    torch.testing.assert_close(loss, expected)
    unshifted = F.cross_entropy(logits_TV, labels_T, ignore_index=IGNORE, reduction="sum")
    assert abs(float(loss - unshifted)) > 1  # negative control: forgetting the shift would show


def test_label_smoothing_is_transformers(problem: tuple[torch.Tensor, torch.Tensor]) -> None:
    from transformers.trainer_pt_utils import LabelSmoother

    logits_TV, labels_T = problem
    loss, _ = SFTObjective(SFTObjectiveConfig(label_smoothing_factor=0.2))(logits_TV, labels_T)
    theirs = LabelSmoother(0.2)({"logits": logits_TV[None]}, labels_T[None].clone(), shift_labels=True)
    torch.testing.assert_close(loss / (labels_T[1:] != IGNORE).sum(), theirs)


def test_dft_weights_the_gradient_of_each_token_by_its_probability(problem: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits_TV, labels_T = problem
    loss, _ = SFTObjective(SFTObjectiveConfig(loss_type="dft"))(logits_TV, labels_T)
    (gradient_TV,) = torch.autograd.grad(loss, logits_TV)
    keep = labels_T[1:] != IGNORE
    probabilities_TV = logits_TV[:-1].detach().softmax(-1)
    own_T = probabilities_TV.gather(-1, labels_T[1:].clamp(min=0)[:, None])[:, 0] * keep
    one_hot_TV = F.one_hot(labels_T[1:].clamp(min=0), 23)
    torch.testing.assert_close(gradient_TV[:-1], own_T[:, None] * (probabilities_TV - one_hot_TV))


def test_a_token_without_label_gets_no_gradient(problem: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits_TV, labels_T = problem
    for settings in ({}, {"loss_type": "dft"}, {"label_smoothing_factor": 0.1}):
        loss, _ = SFTObjective(SFTObjectiveConfig.model_validate(settings))(logits_TV, labels_T)
        (gradient_TV,) = torch.autograd.grad(loss, logits_TV)
        ignored = torch.cat([labels_T[1:] == IGNORE, torch.tensor([True])])
        assert not gradient_TV[ignored].any()
        assert gradient_TV[~ignored].any(-1).all()


def test_accuracy_and_entropy_count_label_tokens_only(problem: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits_TV, labels_T = problem
    _, sums = SFTObjective(SFTObjectiveConfig())(logits_TV, labels_T)
    keep = labels_T[1:] != IGNORE
    hits = (logits_TV[:-1].argmax(-1) == labels_T[1:])[keep].sum()
    entropy = torch.distributions.Categorical(logits=logits_TV[:-1].detach()).entropy()[keep].sum()
    torch.testing.assert_close(sums, torch.stack([hits.float(), entropy]))


def test_smoothing_with_dft_is_refused_by_both_names() -> None:
    with pytest.raises(ConfigError, match=r"label_smoothing_factor.*loss_type: dft"):
        SFTObjective(SFTObjectiveConfig(loss_type="dft", label_smoothing_factor=0.1))
