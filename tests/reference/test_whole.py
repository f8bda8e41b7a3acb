"""Promise: with a real model the reference is computed, kept and checked at step 0; a policy that has moved is found."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from dynotune.data.pairs import Pairs
from dynotune.errors import TrainingError
from dynotune.model.attention.decoder import text_decoder
from dynotune.model.head import find_head, sequence_scores
from dynotune.reference import (
    Key,
    ReferenceCache,
    StepZero,
    Suspects,
    as_reference,
    key_of,
    measured_noise,
    stop_on_breach,
)
from dynotune.reference.pairs import pair_digests
from tests.model.head.plain import batch_of
from tests.reference.pairs import MADE_BY, many
from tests.tiny import tiny_model

PAIRS = many(6, longest=9)


def policy(seed: int = 0) -> Any:
    base = tiny_model()
    torch.manual_seed(seed)
    config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.5, task_type="CAUSAL_LM")
    return get_peft_model(base, config).train()


def logps(model: Any, pairs: Pairs, numbers: Any) -> torch.Tensor:
    """[n, 2], one document after another through the model, all of them through the head at once."""
    found = find_head(model, torch.tensor([5, 9, 300, 17]))
    assert found.head is not None
    rows = [side for p in numbers for side in pairs[int(p)]]
    documents = [(row.ids_T, row.labels_T) for row in rows]
    hidden = [
        text_decoder(model)(input_ids=torch.from_numpy(ids).long()[None], use_cache=False).last_hidden_state[0]
        for ids, _ in documents
    ]
    batch = batch_of(documents, sum(len(ids) for ids, _ in documents))
    owner_T = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor([len(ids) for ids, _ in documents]))
    sequences_N = owner_T[batch.predictors_N]
    scores = sequence_scores(found.head, torch.cat(hidden), batch.predictors_N, batch.targets_N, sequences_N, len(rows))
    return scores.logps_Q.view(-1, 2)


def scorer(model: Any, **how: Any) -> Any:
    def score(numbers: Any) -> Any:
        with as_reference(model, **how):
            return logps(model, PAIRS, numbers).double().numpy()

    return score


def checked(model: Any, reference: Any, then: Key, numbers: Any) -> StepZero:
    step = StepZero(logps(model, PAIRS, numbers).detach().double().numpy(), reference.values_PC[numbers], 1e-6)
    again, own = scorer(model)(numbers), scorer(model, keep_adapter=True)(numbers)
    digests = pair_digests(PAIRS)[numbers]
    stop_on_breach(step, Suspects(digests, reference.digests_P[numbers], key_of(model), then, again, own))
    return step


def test_step_0_in_float32_and_what_a_moved_policy_says(tmp_path: Path) -> None:
    model = policy()
    cache = ReferenceCache(key_of(model), MADE_BY, noise=1e-6, root=tmp_path)
    reference = cache.obtain(PAIRS, scorer(model))
    assert reference.computed == 6
    numbers = np.arange(6)
    assert measured_noise(scorer(model), numbers) < 1e-5
    step = checked(model, reference, cache.key, numbers)
    assert "within" in str(step)
    ratios = step.policy_PC - step.reference_PC
    loss = np.logaddexp(0, -0.1 * (ratios[:, 0] - ratios[:, 1])).mean()
    assert abs(loss - np.log(2)) < 1e-6
    # Another random start of the adapter has the same reference.
    other = policy(seed=77)
    assert ReferenceCache(key_of(other), MADE_BY, noise=1e-6, root=tmp_path).obtain(PAIRS, scorer(other)).computed == 0
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.1)
    with pytest.raises(TrainingError, match=r"What differs: weights\. The adapter does not begin at zero"):
        checked(model, reference, cache.key, numbers)
    changed = policy()
    changed.get_base_model().model.norm.weight.data *= 1.1
    with pytest.raises(TrainingError, match=r"What differs: weights\. The weights changed since"):
        checked(changed, reference, cache.key, numbers)
