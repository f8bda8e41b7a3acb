#!/usr/bin/env python3
# Whole cartularies go to one side: scribes copy formulae within a book, a split by charter would let them through.
import json, random, sys
from collections import defaultdict

SRC = sys.argv[1] if len(sys.argv) > 1 else "charters_all.json"
DEV_SHARE = 0.06
TASK = "Normalise the spelling of this charter and expand all abbreviations."

books = defaultdict(list)
seen = set()
for c in json.load(open(SRC, encoding="utf-8")):
    key = " ".join(c["diplomatic"].split()).lower()
    if key in seen:        # same charter printed twice
        continue
    seen.add(key)
    books[c["cartulary"]].append({"instruction": TASK, "input": c["diplomatic"], "output": c["normalised"]})

names = sorted(books)
random.Random(1066).shuffle(names)
total = sum(len(b) for b in books.values())
dev, train = [], []
for n in names:
    (dev if len(dev) < DEV_SHARE * total else train).extend(books[n])

for name, rows in (("train", train), ("dev", dev)):
    with open(f"data/charters_{name}.json", "w", encoding="utf-8") as f:
        json.dump(rows, f, ensure_ascii=False, indent=1)
    print(name, len(rows))
