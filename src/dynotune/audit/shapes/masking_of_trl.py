"""How TRL takes prompts out of the loss, by the version that a project asks for."""

from dynotune.audit.facts.project import Project
from dynotune.audit.schema.came import SFT_KEYS


def has(project: Project, key: str) -> bool:
    """Whether the pinned TRL has a key that came with a release; no pin: the newest release is installed."""
    pinned = project.pinned("trl")
    return pinned is None or pinned > tuple(int(part) for part in SFT_KEYS[key].last.split("."))


def way_to_answers(project: Project, *, unsloth: bool = False) -> str:
    """What puts the loss on answers alone there, as an imperative sentence without its full stop."""
    if unsloth:
        return "Call Unsloth's `train_on_responses_only` on the trainer, with the marks of its template's turns"
    if has(project, "assistant_only_loss"):
        return (
            "Give rows with `prompt` and `completion`, or `messages` with `assistant_only_loss=True` in `SFTConfig`"
            " (the template needs its `{% generation %}` mark)"
        )
    version = ".".join(map(str, project.pinned("trl") or ()))
    if has(project, "completion_only_loss"):
        return f"Give rows with `prompt` and `completion`, of which TRL {version} trains on the completion alone"
    return (
        f"In TRL {version}, give the trainer `data_collator=DataCollatorForCompletionOnlyLM(...)` with the mark before the"
        " answers, and leave packing off, which it excludes"
    )
