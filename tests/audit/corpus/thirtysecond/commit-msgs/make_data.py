"""git log -> prompt/completion rows. Run inside a clone:  git log -p ... | make_data.py"""
import json
import random
import subprocess
import sys

MAX_DIFF = 500   # characters; longer diffs are not what I want to describe

def commits(repo):
    out = subprocess.run(["git", "-C", repo, "log", "--no-merges", "--format=%H%x09%s"], capture_output=True, text=True, check=True).stdout
    for line in out.splitlines():
        sha, subject = line.split("\t", 1)
        diff = subprocess.run(["git", "-C", repo, "show", "--format=", "-U1", sha], capture_output=True, text=True, errors="replace").stdout
        if 0 < len(diff) <= MAX_DIFF and 12 <= len(subject) <= 72:
            yield diff, subject

rows = []
for repo in sys.argv[1:]:
    for diff, subject in commits(repo):
        rows.append({"prompt": f"### Diff\n{diff}\n### Message\n", "completion": subject})
rows = list({(r["prompt"], r["completion"]): r for r in rows}.values())
random.Random(8).shuffle(rows)
with open("data/commits_train.jsonl", "w") as f:
    for r in rows:
        f.write(json.dumps(r) + "\n")
print(len(rows), "rows")
