"""Where a program asks for its ranks, makes the group of processes, or starts its workers, and what of it runs when."""

import re
from collections.abc import Sequence

from dynotune.audit.facts.script import Call, Script

ASKS = frozenset({"torch.distributed.get_world_size", "torch.distributed.get_rank", "torch.distributed.barrier"})
STARTS = re.compile(
    r"(^|\.)(init_process_group|init_distributed|Accelerator|PartialState|TrainingArguments|Seq2SeqTrainingArguments|SFTConfig"
    r"|DPOConfig|init_device_mesh|HfArgumentParser|TrlParser|Fabric)$"
)
SPAWNS = frozenset(
    {"torch.multiprocessing.spawn", "accelerate.notebook_launcher", "torch.multiprocessing.start_processes"}
)


def function_of(call: Call) -> str:
    return ".".join(around.name for around in call.around if around.kind in ("function", "class"))


def room_of(call: Call) -> str:
    """The function that it runs in, `__main__` under that condition; empty: it runs when the file is loaded."""
    return function_of(call) or ("__main__" if any(around.kind == "main" for around in call.around) else "")


def is_loaded_late(script: Script, near: Sequence[Script]) -> bool:
    """All imports of the file stand in functions, and may come behind whatever sets the variables."""
    stem = script.file.rpartition("/")[2].removesuffix(".py")
    users = [
        one
        for one in near
        if one is not script and re.search(rf"\bimport\b[^\n]*\b{stem}\b|\b{stem}\s+import\b", one.source)
    ]
    return bool(users) and not any(
        re.search(rf"^(from|import)\b[^\n]*\b{stem}\b", one.source, re.MULTILINE) for one in users
    )
