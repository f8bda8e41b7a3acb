"""Which flag of a program is meant by one that it does not have: nearly the same word, or another word for the same."""

import difflib
import re
from collections.abc import Collection

from dynotune.audit.facts.names_of_settings import SAME

_SAME = (
    *SAME.values(),
    (
        "batch_size",
        "bs",
        "train_batch_size",
        "per_device_train_batch_size",
        "per_device_batch_size",
        "micro_batch_size",
    ),
    ("model", "model_name", "model_name_or_path", "base_model", "model_path", "model_id"),
    ("output_dir", "out_dir", "output", "out", "save_dir", "output_path"),
    ("data", "dataset", "data_path", "dataset_name", "train_file", "train_data", "data_file", "dataset_path"),
    ("warmup", "warmup_steps", "num_warmup_steps"),
    ("weight_decay", "wd"),
    ("max_grad_norm", "grad_clip", "clip_grad_norm", "clip"),
    ("lora_r", "lora_rank", "rank", "r"),
    ("workers", "num_workers", "dataloader_num_workers"),
)
"""Words of one meaning, or nearly: a program with one of them is not asked for another by mistake."""

_PREFIX = re.compile(r"^(?:use|enable|with|do|apply)_")


def meant_by(name: str, flags: Collection[str]) -> str:
    """A flag of the program's own; empty: none is near, or more than one is."""
    name = name.replace("-", "_")
    close = next(iter(difflib.get_close_matches(name, sorted(flags), 1, 0.8)), "")
    if close:
        return close
    bare = [flag for flag in flags if _PREFIX.sub("", flag) == _PREFIX.sub("", name)]
    same = [flag for words in _SAME if name in words for flag in words if flag in flags]
    found = bare or same
    return found[0] if len(found) == 1 else ""
