"""Turns scored answers into preference pairs (best against worst, at least 1.0 apart)."""
import collections
import json
import sys


def main(src, dst, gap=1.0):
    by_prompt = collections.defaultdict(list)
    with open(src, encoding="utf-8") as fh:
        for line in fh:
            r = json.loads(line)
            by_prompt[r["prompt"]].append((float(r["helpfulness"]), r["answer"]))

    n = 0
    with open(dst, "w", encoding="utf-8") as out:
        for prompt, answers in by_prompt.items():
            answers.sort(key=lambda a: a[0])
            (low, bad), (high, good) = answers[0], answers[-1]
            if high - low < gap or good == bad:
                continue
            row = {
                "prompt": [{"role": "user", "content": prompt}],
                "chosen": [{"role": "assistant", "content": good}],
                "rejected": [{"role": "assistant", "content": bad}],
            }
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
            n += 1
    print(f"{len(by_prompt)} prompts, {n} pairs")


if __name__ == "__main__":
    main(*sys.argv[1:3])
