"""An evaluation of a language model keeps the logits of all its rows, since a metric is computed of them."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.steps import text_at
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_OTHERWISE = re.compile(
    r"preprocess_logits_for_metrics|predict_with_generate|prediction_loss_only|batch_eval_metrics|def prediction_step"
    r"|def evaluation_loop|Seq2SeqTrainer|SequenceClassification|TokenClassification|MultipleChoice|MaskedLM"
)
"""What takes less of them, or a model whose logits are few."""

_KEEPS = re.compile(r"\bcompute_metrics\s*=\s*(?!None)\w")


def logits_of_an_evaluation(job: Job, project: Project) -> Iterator[Said]:
    """`compute_metrics` of a causal model, and nothing that makes less of its logits before they are kept."""
    if job.trainer not in (Trainer.TRANSFORMERS, Trainer.TRL):
        return
    for script in (one for one in project.scripts if one.file in job.files):
        sources = [code(one) for one in connected(script, project)]
        if not any("CausalLM" in one for one in sources) and job.trainer is not Trainer.TRL:
            continue
        if any(_OTHERWISE.search(one) for one in sources):
            continue
        for call in script.calls:
            last = call.name.rpartition(".")[2]
            text = text_at(script, call.place) if last in ("Trainer", "SFTTrainer") else ""
            kept = call.arguments.get("compute_metrics")
            if not _KEEPS.search(text) or "eval_dataset" not in text:
                continue
            yield Finding(
                "`compute_metrics` gets the logits of all rows of the evaluation, each token over the whole vocabulary: they"
                " are gathered on the GPU until the last row (128 rows of 1,024 tokens with 152,000 words are 74 GiB).",
                place=kept.place if kept is not None and kept.place.file == script.file else call.place,
                also=(call.place,),
                evidence=Evidence(Level.TEXT, {"preprocess_logits_for_metrics": None}),
                stake=Stake(AtStake.MEMORY, 1.0, None, "rows x tokens x vocabulary x 4 bytes"),
                remedy=Remedy(
                    Risk.SAFE,
                    "Give `preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1)`, and compute with ids.",
                    effort=Effort.MINUTES,
                    measure="nvidia-smi while it evaluates",
                ),
            )
            return
