"""A probe: an arm's run is opened and stands on a handful of examples, takes one step, and writes down what came of it.

`python -m dynotune.bench.parity.probe PIPE` answers requests (`Request`) until there are no more, each question with a model
loaded anew.
"""

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from rich.console import Console

from dynotune.bench.parity.course import course
from dynotune.bench.parity.draws import draw_adapter, draw_weights, move_off
from dynotune.bench.parity.held_out import held_out
from dynotune.bench.parity.losses import losses_of
from dynotune.bench.parity.question import Answer, Asked, Course, HeldOut, Question, asked_from
from dynotune.bench.parity.rows import choose, facts_of
from dynotune.bench.parity.settings import probed, without_impossible
from dynotune.bench.parity.step import take
from dynotune.bench.workers.worker import config_at
from dynotune.config.dpo import DPOConfig
from dynotune.config.keys.batch import BatchConfig
from dynotune.config.whole import WholeConfig
from dynotune.errors import DynotuneError
from dynotune.execution.feed import Documents
from dynotune.model.dropout import without_dropout
from dynotune.parallel.ranks import Ranks
from dynotune.plan.ladder import round_up
from dynotune.plan.plan import Plan
from dynotune.plan.truncation import as_predicting
from dynotune.train.start.device import set_up_process
from dynotune.train.start.execution import Execution, context_of
from dynotune.train.start.given import Given
from dynotune.train.start.material import Material
from dynotune.train.start.opened import Opened, opened
from dynotune.train.start.recipes import recipe_of
from dynotune.train.start.stand import stand


@dataclass(frozen=True, slots=True)
class Request:
    """What a process of probes is to do."""

    config: str
    """Path of the arm's configuration."""

    method: str
    folder: str
    """Where answers go: `NAME.safetensors` of each question."""

    questions: Sequence[Asked]
    imports: tuple[str, ...] = ()
    """Modules that are imported first, such as those that register speed-ups of one's own."""

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Request":
        given = json.loads(path.read_text(encoding="utf-8"))
        given["questions"] = [asked_from(one) for one in given["questions"]]
        return cls(**{**given, "imports": tuple(given["imports"])})


def answer(config: WholeConfig, asked: Asked, folder: Path, console: Console | None = None) -> Answer:
    """What `config` does, as the question asks. folder: for the files of a run.

    What a user can mend is an answer: `Answer.failed`. Raises what else the run would.
    """
    console = console or Console(quiet=True)
    try:
        if isinstance(asked, Course):
            return course(config, asked, folder, console)
        if isinstance(asked, HeldOut):
            return held_out(config, asked, folder, console)
        return of_step(config, asked, folder, console)
    except DynotuneError as error:
        return Answer({"failed": str(error)})


def of_step(config: WholeConfig, question: Question, folder: Path, console: Console) -> Answer:
    """Take one step."""
    began = time.perf_counter()
    settings = probed(config, question, folder / "run")
    recipe, given, ranks = recipe_of(settings), Given(), Ranks()
    device = set_up_process(settings)
    with ExitStack() as stack:
        it = stack.enter_context(opened(settings, recipe, given, ranks, device, console))
        undo = stack.enter_context(ExitStack())
        without_dropout(it.prepared.model, undo)
        if settings.random_weights:
            draw_weights(it.prepared.model, question.seed)
        rows = np.array(question.rows, np.int64) if question.rows else rows_of(it.material)
        whole = it.material
        it.material = replace(whole, plan=plan_of(whole.plan, rows), held_out={})
        settings, left_out = micro_batched(it, settings, question), dict[str, str]()
        if question.precision == "float32" and not question.plain:
            settings, left_out = without_impossible(settings, _context(it, settings))
        # As a rehearsal: a reference is computed by this arm itself, and not taken from what another one kept.
        standing = stand(it, settings, recipe, given, undo=undo, rehearsal=True)
        run, execution = standing.run, standing.execution
        run.trainee.model.train()
        if not draw_adapter(it.prepared.model, question.seed) and isinstance(settings, DPOConfig):
            move_off(it.prepared.model, question.seed)
        step = run.plan.step(1)
        losses = losses_of(run, step)
        facts, tensors = take(run, settings.max_grad_norm, question.seed)
        run.display.stop()
        facts |= {
            "rows": rows.tolist(),
            "data": whole.plan.digest,
            "lengths": step.lengths.tolist(),
            "micro_batches": [[*map(int, batch.rows)] for batch in step.micro_batches],
            "precision": precision_of(it, execution),
            "installed": sorted(one.name for one in execution.installed),
            "attention": execution.site.attention if execution.site.packed else "",
            "left_out": left_out,
            "said": [*execution.says, *standing.before],
            "seed": question.seed,
            "device": device.type,
            "seconds": time.perf_counter() - began,
        }
        return Answer(facts, tensors | losses)


def rows_of(material: Material) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """The examples on which mistakes show."""
    plan = material.plan
    examples = material.items.examples if isinstance(material.items, Documents) else None
    return choose(facts_of(np.unique(plan.rows), cast("Any", plan.spans), examples))


def plan_of(plan: Plan, rows: "np.ndarray[Any, np.dtype[np.int64]]") -> Plan:
    """One step of these rows, in this order."""
    one_step = BatchConfig(global_batch_size=len(rows), train_sampling_strategy="sequential", num_train_epochs=1.0)
    return Plan(plan.spans, rows, one_step, plan.seed, plan.digest)


def micro_batched(it: Opened, settings: WholeConfig, question: Question) -> WholeConfig:
    """`micro_batch_tokens` such that a step of these few examples takes several micro-batches where the arm packs, or one:
    with the longest example alone in the smallest, a loss that is a mean of means and a micro-batch that is lost both show.
    """
    if settings.execution[0] == "off":
        return settings
    plan = it.material.plan
    spans = as_predicting(plan.spans)
    lengths = spans.attention_of(plan.rows)[0]
    longest = int(spans.lengths_of(plan.rows).max())
    tokens = round_up(longest if question.split == "least" else int(lengths.sum()))
    return settings.replace(micro_batch_tokens=max(64, tokens))


def precision_of(it: Opened, execution: Execution) -> str:
    """In which weights are kept and products computed."""
    kept = sorted({str(p.dtype).removeprefix("torch.") for p in it.prepared.model.parameters()})
    return f"{' and '.join(kept)}, computed in {str(execution.site.context.compute).removeprefix('torch.')}"


def _context(it: Opened, settings: WholeConfig) -> Any:
    plan = it.material.plan
    return context_of(settings, it.prepared.model, it.precision, plan.longest_document, plan=plan)


def fulfil(request: Request, console: Console) -> None:
    """Answer all questions of a request."""
    for name in request.imports:
        importlib.import_module(name)
    config, folder = config_at(Path(request.config), request.method), Path(request.folder)
    for question in request.questions:
        answer(config, question, folder, console).write(folder / f"{question.name}.safetensors")
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # the next question loads its own model


def main() -> int:
    """Requests by their paths, a line of JSON each on standard input; a line on the pipe whose number is given behind
    each."""
    console = Console(force_terminal=False, width=160)
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as answers:
        for line in sys.stdin:
            fulfil(Request.read(Path(json.loads(line))), console)
            answers.write("done\n")
            answers.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
