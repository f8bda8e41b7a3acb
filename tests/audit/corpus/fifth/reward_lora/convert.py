import csv
import json
import sys

src, dst = sys.argv[1:3]
with open(src, newline="", encoding="utf-8") as f, open(dst, "w", encoding="utf-8") as out:
    for r in csv.DictReader(f):
        if r["preferred"] not in ("1", "2"):
            continue
        win, lose = (r["reply_1"], r["reply_2"]) if r["preferred"] == "1" else (r["reply_2"], r["reply_1"])
        prompt = [{"role": "user", "content": r["request"]}]
        out.write(
            json.dumps(
                {
                    "chosen": prompt + [{"role": "assistant", "content": win}],
                    "rejected": prompt + [{"role": "assistant", "content": lose}],
                }
            )
            + "\n"
        )
