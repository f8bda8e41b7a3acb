"""Held-out loss and sampled generations."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynotune.data.examples import IGNORE, Examples
from dynotune.model.forward import logits_of_document
from dynotune.objectives.sft import Objective
from dynotune.plan.truncation import Spans
from dynotune.train.data import Documents

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One held-out data set. `rows` are the indices with label tokens."""

    examples: Examples
    spans: Spans
    rows: np.ndarray


class Evaluator:
    """Evaluates every held-out data set, one document at a time.

    The loss is the mean over the set's label tokens, so no batch size can change it. (TRL averages the means of batches.)
    Names follow transformers: `eval_loss`, or `eval_NAME_loss` where there are several sets.
    """

    def __init__(
        self,
        held_out: Mapping[str, HeldOut],
        objective: Objective,
        tokenizer: "PreTrainedTokenizerBase",
        device: torch.device,
        samples: int,
        max_new_tokens: int,
    ) -> None:
        self.held_out, self.objective, self.tokenizer, self.device = held_out, objective, tokenizer, device
        self.samples, self.max_new_tokens = samples, max_new_tokens

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics that every evaluation gives."""
        return [f"{_prefix(name)}_{what}" for name in self.held_out for what in ("loss", *self.objective.sums)]

    def __call__(
        self,
        model: "PreTrainedModel",
        autocast: AbstractContextManager[Any],
        on_document: Callable[[], None] = lambda: None,
    ) -> dict[str, float]:
        """Metrics of all sets; `on_document` is called after each document. The model is put back into training mode."""
        metrics: dict[str, float] = {}
        model.eval()
        with torch.no_grad(), autocast:
            for name, held in self.held_out.items():
                prefix = _prefix(name)
                documents = Documents(held.examples, held.spans, self.device)
                totals = torch.zeros(1 + len(self.objective.sums), dtype=torch.float64, device=self.device)
                for chunk in np.array_split(held.rows, max(1, len(held.rows) // 64)):
                    for ids_T, labels_T in documents.of_rows(chunk):
                        loss, sums = self.objective(logits_of_document(model, ids_T), labels_T)
                        totals += torch.cat([loss.detach()[None], sums])
                        on_document()
                means = (totals / int(held.spans.label_tokens[held.rows].sum())).tolist()
                metrics[f"{prefix}_loss"] = means[0]
                metrics |= {f"{prefix}_{key}": value for key, value in zip(self.objective.sums, means[1:], strict=True)}
        model.train()
        return metrics

    def generate(self, model: "PreTrainedModel", autocast: AbstractContextManager[Any]) -> list[dict[str, str]]:
        """Greedy generations for the first prompts of every set: what stands before the first label token."""
        rows: list[dict[str, str]] = []
        generate: Any = model.generate
        model.eval()
        with torch.no_grad(), autocast:
            for name, held in self.held_out.items():
                for row in held.rows[: self.samples]:
                    ids = held.examples.ids[held.spans.start[row] : held.spans.end[row]]
                    labels = held.examples.labels[held.spans.start[row] : held.spans.end[row]]
                    cut = int(np.argmax(labels != IGNORE))
                    if cut < 2:  # nothing, or a begin token alone, stands before the first trained token
                        continue
                    prompt = torch.from_numpy(ids[:cut]).to(self.device).long()[None]
                    out = generate(
                        input_ids=prompt,
                        attention_mask=torch.ones_like(prompt),
                        max_new_tokens=self.max_new_tokens,
                        do_sample=False,
                        use_cache=True,
                    )
                    rows.append(
                        {
                            "dataset": name,
                            "prompt": self._text(ids[:cut]),
                            "generation": self._text(out[0, cut:].tolist()),
                            "reference": self._text(ids[cut:]),
                        }
                    )
        model.train()
        return rows

    def sets_without_prompts(self) -> list[str]:
        """Data sets whose first row is trained from its first tokens: there is nothing that a generation could answer."""
        return [
            name
            for name, held in self.held_out.items()
            if self.samples and (held.examples.labels[held.spans.start[held.rows[0]] :][:2] != IGNORE).any()
        ]

    def _text(self, ids: Any) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))


def _prefix(name: str) -> str:
    return "eval" if name == "eval" else f"eval_{name}"
