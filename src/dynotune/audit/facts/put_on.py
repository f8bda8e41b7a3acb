"""Where a script puts a model that it has loaded."""

import re

from dynotune.audit.facts.script import Call, Script

MOVES = re.compile(
    r"\.to\(|\.cuda\(|\.prepare\(|prepare_model|deepspeed|fsdp|fully_shard|DataParallel|set_default_device"
    r"|with torch\.device|Fabric|\.setup\(|dispatch_model|load_checkpoint_and_dispatch"
    r"|[(,]\s*device\s*=\s*|xla|\.half\(\)\.cuda|ray\b|\bmps\b",
    re.IGNORECASE,
)


def name_of(script: Script, call: Call) -> str:
    """The variable that the model goes to, also through `.eval()` and the like behind it."""
    before = script.source.split("\n")[call.place.line - 1][: call.place.column - 1]
    found = re.fullmatch(r"\s*(\w+)\s*=\s*", before)
    return call.result or (found[1] if found is not None else "")


def is_given_on(name: str, source: str) -> bool:
    """To a function or a class, which may move it."""
    return re.search(rf"[(,=\[]\s*{name}\s*[,)\]]", source) is not None


def is_moved_at_once(script: Script, call: Call) -> bool:
    """`from_pretrained(...).cuda()`."""
    behind = "\n".join(script.source.split("\n")[call.place.end_line - 1 :][:3])[call.place.end_column - 1 :]
    return bool(re.match(r"\s*(\.(eval|train|float)\(\))*\.(to|cuda|half|bfloat16)\b", behind))
