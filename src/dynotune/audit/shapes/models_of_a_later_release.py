"""A job's model is of a kind that the release of transformers which the project asks for does not have yet."""

import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.job import Trainer
from dynotune.audit.facts.project import Asked, Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.schema.keys import earlier

_SINCE: Sequence[tuple[re.Pattern[str], str, str]] = tuple(
    (re.compile(pattern), kind, since)
    for pattern, kind, since in (
        (r"^qwen-?3[-_.]\d+(?:\.\d+)?b|^qwen3-\d", "qwen3", "4.51.0"),
        (r"^qwen-?(?:1\.5|2|2\.5)[-_](?!.*(?:vl|audio|omni|moe))", "qwen2", "4.37.0"),
        (r"^gemma-3-(?:1b|270m|4b|12b|27b)", "gemma3", "4.50.0"),
        (r"^gemma-2-\d+b", "gemma2", "4.42.0"),
        (r"^gemma-(?:2b|7b)", "gemma", "4.38.0"),
        (r"^(?:meta-)?llama-3\.[123]-", "llama with `rope_type: llama3`", "4.43.0"),
        (r"^olmo-2-", "olmo2", "4.47.0"),
        (r"^modernbert-", "modernbert", "4.48.0"),
        (r"^mixtral-", "mixtral", "4.36.0"),
        (r"^smollm3-", "smollm3", "4.53.0"),
        (r"^gpt-oss-", "gpt_oss", "4.55.0"),
    )
)
"""By the last part of a model's name in small letters. Folders of models/ in the wheels of 4.36.2, 4.37.0, 4.41.2, 4.42.0,
4.43.0, 4.47.0, 4.48.3, 4.50.0 and 4.51.0; gemma, mixtral, smollm3 and gpt_oss by the notes of their releases. Before 4.43
configuration_llama.py refuses a `rope_scaling` of more than two fields."""

_TRAINERS = (Trainer.TRL, Trainer.TRANSFORMERS, Trainer.TORCH)


def models_of_a_later_release(pinned: Sequence[Asked], project: Project) -> Iterator[Said]:
    asked = [one for one in pinned if one.name == "transformers"]
    said: set[str] = set()
    for job in project.jobs if len({one.version for one in asked}) == 1 else ():
        name = job.get("model_name_or_path")
        if not isinstance(name, str) or "/" not in name or name.startswith((".", "/")) or name in said:
            continue  # a folder of one's own may be called anything
        last = name.rpartition("/")[2].lower()
        kind, since = next(((kind, since) for pattern, kind, since in _SINCE if pattern.search(last)), ("", ""))
        if not kind or not earlier(asked[0].version, since) or job.get("trust_remote_code") is True:
            continue
        if job.trainer not in _TRAINERS:
            continue
        said.add(name)
        yield Finding(
            f"transformers {asked[0].version} is asked for, and `{name}` is a model of a kind that came with {since}"
            f" ({kind}): loading it stops with an error.",
            place=asked[0].place,
            evidence=Evidence(Level.TEXT, {"transformers": asked[0].version, "model": name, "since": since}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(Risk.OPERATIONAL, f"Ask for transformers>={since}.", effort=Effort.MINUTES),
            also=(job.place("model_name_or_path"),),
        )
