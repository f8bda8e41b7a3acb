"""Writes sums.jsonl.gz: 1,200 conversations on sums, a few long, as most data has them."""

import gzip
import json
import random
from itertools import accumulate
from pathlib import Path

rng = random.Random(0)  # noqa: S311  (data, not a secret)
rows = []
for _ in range(1_200):
    numbers = [rng.randint(10, 999) for _ in range(min(90, 2 + int(rng.lognormvariate(1.6, 0.8))))]
    totals = list(accumulate(numbers))
    steps = [f"Adding {b} to {a} gives {c}." for a, b, c in zip(totals, numbers[1:], totals[1:], strict=False)]
    asked = f"What do you get if you add {' and '.join(map(str, numbers))}? Please show each step."
    told = "\n".join([*steps, f"So the sum of all the numbers is {totals[-1]}."])
    rows.append({"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": told}]})
text = "".join(json.dumps(row) + "\n" for row in rows)
Path(__file__).with_name("sums.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
