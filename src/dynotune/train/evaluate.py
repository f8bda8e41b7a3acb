"""Held-out loss and sampled generations."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from dynotune.data.examples import IGNORE
from dynotune.execution.feed import AHEAD, Feed, Items
from dynotune.execution.path import ExecutionPath
from dynotune.objectives.counted import Counted
from dynotune.parallel.ranks import Ranks
from dynotune.plan.ladder import Ladder, round_up
from dynotune.plan.layout import MicroBatch
from dynotune.plan.spread import Cost
from dynotune.plan.together import lay_out_step
from dynotune.plan.truncation import Units
from dynotune.train.faults.memory import lower_ladder

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


LAID_OUT_AT_ONCE = 1024
"""Held-out rows that are laid out together."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One held-out data set. `rows` are the numbers of what has label tokens."""

    items: Items
    spans: Units
    rows: np.ndarray

    def on(self, path: ExecutionPath) -> Self:
        """The same as it is laid out there."""
        return replace(self, spans=path.units(self.spans))

    @property
    def longest(self) -> int:
        """Tokens that a micro-batch must hold."""
        return self.spans.largest(self.rows, np.array([0, len(self.rows)]))

    @property
    def longest_document(self) -> int:
        return int(self.spans.sequence_lengths_of(self.rows).max(initial=0))

    def parts(self) -> Iterator[np.ndarray]:
        """The rows a part at a time, groups whole: what is on its way to the device must not grow with the data set."""
        firsts = np.arange(0, len(self.rows), self.spans.group)
        for some in np.array_split(firsts, max(1, len(self.rows) // LAID_OUT_AT_ONCE)):
            if len(some):
                yield self.rows[some[0] : some[-1] + self.spans.group]


class Evaluator:
    """Evaluates every held-out data set, in micro-batches of the training's own path.

    The loss is the mean over the set's label tokens, so no batch size can change it. (TRL averages the means of batches.)
    Names follow transformers: `eval_loss`, or `eval_NAME_loss` where there are several sets.
    """

    def __init__(
        self,
        held_out: Mapping[str, HeldOut],
        path: ExecutionPath,
        objective: Counted,
        tokenizer: "PreTrainedTokenizerBase",
        device: torch.device,
        samples: int,
        max_new_tokens: int,
        ranks: Ranks | None = None,
    ) -> None:
        self.held_out = {name: held.on(path) for name, held in held_out.items()}
        self.path, self.objective = path, objective
        self.tokenizer, self.device = tokenizer, device
        self.samples, self.max_new_tokens = samples, max_new_tokens
        self.ranks = ranks or Ranks()
        self.ahead = AHEAD
        """Micro-batches that are made while one is worked on."""

        self.most: int | None = None
        """Tokens of the largest micro-batch where memory ran out in larger ones, which training may still hold."""

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics that every evaluation gives."""
        return [f"{_prefix(name)}_{what}" for name in self.held_out for what in ("loss", *self.objective.sums)]

    def __call__(
        self,
        model: "PreTrainedModel",
        autocast: AbstractContextManager[Any],
        ladder: Ladder | None,
        on_batch: Callable[[], None] = lambda: None,
        step: int = 0,
    ) -> dict[str, float]:
        """Metrics of all sets, on every rank; `on_batch` is called after each of this rank's micro-batches, of training step
        `step`. The model is put back into training mode.

        ladder: that of the plan; None: one document at a time.
        """
        size = 1 + len(self.objective.sums)
        totals = torch.zeros(len(self.held_out), size, dtype=torch.float64, device=self.device)
        model.eval()
        with torch.no_grad(), autocast:
            for place, held in enumerate(self.held_out.values()):
                feed = Feed(held.items, self.path, self.device, self.ahead)
                with closing(feed.batches(self._micro_batches(held, ladder))) as batches:
                    for batch in batches:
                        with self.path.engaged():
                            loss, sums = self.path.loss(batch)
                        totals[place] += torch.cat([loss.detach()[None], sums])
                        on_batch()  # outside of `engaged`: a callback may call the model
                        self.ranks.at(step, "the evaluation")
        model.train()
        # Once, at the end: a rank that runs out of memory begins again by itself, and the others wait for it here.
        of_all = self.ranks.sum(totals).tolist()
        metrics: dict[str, float] = {}
        for (name, held), sums_of in zip(self.held_out.items(), of_all, strict=True):
            names, counts = ("loss", *self.objective.sums), self.objective.counts(held.spans, held.rows)
            for key, total, count in zip(names, sums_of, counts, strict=True):
                metrics[f"{_prefix(name)}_{key}"] = total / count
        return metrics

    def lower(self, ladder: Ladder | None) -> int | None:
        """Lay out smaller from here on: the new most. None where nothing smaller holds the longest document."""
        if ladder is not None:
            longest = max(held.longest for held in self.held_out.values())
            most = lower_ladder(ladder, self.most, longest)
            self.most = most or self.most
            return most
        return None

    def _micro_batches(self, held: HeldOut, ladder: Ladder | None) -> Iterator[MicroBatch]:
        for rows in held.parts():
            fitting = self._ladder_for(held.spans.largest(rows, np.array([0, len(rows)])), ladder)
            yield from lay_out_step(held.spans, rows, fitting, self.ranks.world, Cost())[self.ranks.rank]

    def _ladder_for(self, longest: int, ladder: Ladder | None) -> Ladder | None:
        """The plan's ladder as far as evaluation goes up on it, and a rung for what is longer."""
        if ladder is None:
            return None
        most = min(self.most or ladder.top, ladder.top)
        top = max(most, round_up(longest))  # held-out documents are no part of the plan that chose the ladder
        return Ladder(sorted({rung for rung in ladder.rungs if rung < most} | {most, top}))

    def generate(self, model: "PreTrainedModel", autocast: AbstractContextManager[Any]) -> list[dict[str, str]]:
        """Greedy generations for the first prompts of every set: what stands before the first label token."""
        rows: list[dict[str, str]] = []
        generate: Any = model.generate
        model.eval()
        with torch.no_grad(), autocast:
            for name, held in self.held_out.items():
                for row in held.rows[: self.samples]:
                    ids, labels = held.items.prompted(int(row))
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
            if self.samples and (held.items.prompted(int(held.rows[0]))[1][:2] != IGNORE).any()
        ]

    def _text(self, ids: Any) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))


def _prefix(name: str) -> str:
    return "eval" if name == "eval" else f"eval_{name}"
