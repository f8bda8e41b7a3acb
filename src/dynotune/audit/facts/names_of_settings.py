"""What people call a setting in their own parsers and configurations, by the name that trainers have for it."""

import re
from collections.abc import Mapping

SAME: Mapping[str, tuple[str, ...]] = {
    "learning_rate": ("lr", "learning_rate"),
    "num_train_epochs": ("epochs", "num_epochs", "num_train_epochs", "n_epochs", "max_epochs"),
    "max_length": (
        "max_length", "max_len", "max_seq_length", "max_seq_len", "seq_len", "seq_length", "block_size", "cutoff_len",
    ),
    "gradient_accumulation_steps": (
        "gradient_accumulation_steps", "grad_accum", "accum", "accum_steps", "grad_accum_steps", "accumulation_steps",
    ),
}  # fmt: skip
"""One thing each, whoever names it so. A batch size is none: of a device, a step or all ranks."""

ACCUMULATION = re.compile(r"accum|grad_acc|\bgas\b", re.IGNORECASE)
"""Found in what a number of micro-batches an update is called."""
