"""How much slower this host is than one on which limits in seconds were set."""

import ast
import time

SOURCE = "def f(a, b=1):\n    return [a + b * i for i in range(10) if i % 2]\n" * 400
SECONDS = 0.05
"""Of processor time that `SOURCE` takes on a host for which limits hold as they are (0.07 where they were
tried, on two busy cores)."""


def slower() -> float:
    """1, or more on a slow or shared processor, whose processor time is longer too."""
    start = time.process_time()
    ast.dump(ast.parse(SOURCE))
    return max(1.0, (time.process_time() - start) / SECONDS)
