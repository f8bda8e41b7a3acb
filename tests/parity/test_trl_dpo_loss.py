"""Promise: one batch of a real DPOTrainer gives TRL's loss, gradients and metrics through our head and objective.

Both sides get the same tokens, the same policy and the same other model as reference, in float32 on the CPU. TRL pads and
runs [chosen; rejected] at once; here each sequence is a document of its own.
"""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dynotune.config.keys.preference import PreferenceConfig
from dynotune.model.base import base_of
from dynotune.model.head import SequenceScores, find_head, sequence_scores
from dynotune.objectives.preference.from_scores import pairs_of, predictions_of
from dynotune.objectives.preference.groups import in_tail, token_shares
from dynotune.objectives.preference.logged import Counts
from dynotune.objectives.preference.objective import PreferenceObjective
from dynotune.objectives.preference.pairs import Need
from tests.tiny import sentences, tiny_model, tiny_tokenizer

PAIRS = 4


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """TRL's own, with its dataset, collator and models. The reference is another model, so that ratios are not 0."""
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    texts = sentences(3 * PAIRS, seed=5)
    rows = [{"prompt": next(texts), "chosen": " " + next(texts), "rejected": " " + next(texts)} for _ in range(PAIRS)]
    args = DPOConfig(
        output_dir=str(tmp_path_factory.mktemp("trl")),
        per_device_train_batch_size=PAIRS,
        train_sampling_strategy="sequential",
        gradient_checkpointing=False,
        use_weighting=True,  # so that its head gives what WPO needs
        use_cpu=True,
        bf16=False,
        report_to="none",
        disable_tqdm=True,
    )
    made = DPOTrainer(
        model=tiny_model(seed=1),
        ref_model=tiny_model(seed=2),
        args=args,
        train_dataset=Dataset.from_list(rows),
        processing_class=tiny_tokenizer(),
    )
    made.model.eval()
    return made


def theirs(trainer: Any, config: PreferenceConfig) -> tuple[Tensor, dict[str, float], dict[str, Tensor], Any]:
    trainer.loss_types, trainer.loss_weights = config.loss_type, config.loss_weights or [1.0] * len(config.loss_type)
    for key in ("beta", "ld_alpha", "label_smoothing", "use_weighting", "f_divergence_type"):
        setattr(trainer, key, getattr(config, key))
    trainer._metrics["eval"].clear()
    batch = next(iter(trainer.get_train_dataloader()))
    trainer.model.zero_grad()
    loss = trainer.compute_loss(trainer.model, batch)
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in trainer.model.named_parameters()}
    trainer.model.zero_grad()
    return loss.detach(), {name: values[0] for name, values in trainer._metrics["eval"].items()}, gradients, batch


def scores_of(model: Any, batch: Any) -> tuple[SequenceScores, Tensor]:
    """Scores of TRL's batch, sequence by sequence in our order, and their label tokens."""
    order = [row + side * PAIRS for row in range(PAIRS) for side in (0, 1)]
    ids = [batch["input_ids"][row][batch["attention_mask"][row].bool()] for row in order]
    labelled = [batch["completion_mask"][row][batch["attention_mask"][row].bool()].bool() for row in order]
    head = find_head(model, ids[0]).head
    assert head is not None
    hidden = [base_of(model).model(input_ids=one[None], use_cache=False).last_hidden_state[0] for one in ids]
    starts = np.cumsum([0, *(len(one) for one in ids)])
    places = [mask.nonzero()[:, 0] for mask in labelled]
    lengths = np.array([len(place) for place in places])
    sequences = np.repeat(np.arange(2 * PAIRS), lengths)
    scores = sequence_scores(
        head,
        torch.cat(hidden),
        torch.cat([place - 1 + int(start) for place, start in zip(places, starts, strict=False)]),
        torch.cat([one[place] for one, place in zip(ids, places, strict=True)]),
        torch.from_numpy(sequences),
        2 * PAIRS,
        tails_N=torch.from_numpy(in_tail(sequences, lengths).astype(np.int64)),
        mean_logits=True,
        aligned_logps=True,
    )
    return scores, torch.from_numpy(lengths)


@pytest.mark.parametrize(
    "settings",
    [
        {"loss_type": ["sigmoid"]},
        {"loss_type": ["ipo"], "use_weighting": True},
        {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.3], "ld_alpha": 0.3},
        {"loss_type": ["aot", "discopop"], "label_smoothing": 0.1, "beta": 0.4},
        {"loss_type": ["sigmoid_norm"], "f_divergence_type": "js_divergence", "ld_alpha": 0.0},
    ],
    ids=str,
)
def test_a_batch_of_a_real_trainer(trainer: Any, settings: dict[str, Any]) -> None:
    config = PreferenceConfig(**settings)
    expected, metrics, gradients, batch = theirs(trainer, config)
    objective = PreferenceObjective(config)
    with torch.no_grad():
        reference, _ = scores_of(trainer.ref_model, batch)
    scores, lengths_Q = scores_of(trainer.model, batch)
    pairs = pairs_of(
        scores,
        lengths_Q,
        reference.logps_Q if Need.REFERENCE in objective.needs else None,
        reference.tails_Q,
        groups=(PAIRS,),
        token_shares_P=torch.from_numpy(token_shares(lengths_Q[::2].numpy(), PAIRS)).float(),
    )
    loss, sums = objective(pairs, predictions_of(scores))
    assert float(loss) / PAIRS == pytest.approx(float(expected), rel=1e-5)
    assert float(expected) != pytest.approx(float(np.log(2)), abs=1e-4)

    (loss / PAIRS).backward()
    for name, p in trainer.model.named_parameters():
        assert p.grad is not None
        off = (p.grad - gradients[name]).norm() / gradients[name].norm()
        assert float(off) < 1e-4, name

    counts = Counts(PAIRS, int(lengths_Q[::2].sum()), int(lengths_Q[1::2].sum()))
    for (name, over), total in zip(objective.sums.items(), sums, strict=True):
        assert float(total) / counts.of(over) == pytest.approx(metrics[name], rel=1e-4, abs=1e-6), name


def test_a_reference_of_the_wrong_pairs_would_show(trainer: Any) -> None:
    """Negative control: the same, with the reference of each pair given to the next one."""
    config = PreferenceConfig()
    expected, _, _, batch = theirs(trainer, config)
    with torch.no_grad():
        reference, _ = scores_of(trainer.ref_model, batch)
        scores, lengths_Q = scores_of(trainer.model, batch)
        pairs = pairs_of(scores, lengths_Q, reference.logps_Q.roll(2))
        loss, _ = PreferenceObjective(config, predictions=False)(pairs)
    assert float(loss) / PAIRS != pytest.approx(float(expected), rel=1e-3)
