"""Whether a text trains, by its own loop or by a trainer."""

import re

TRAINS = re.compile(r"Trainer\(|\.backward\(")
