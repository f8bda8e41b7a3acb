"""Checks that every conversation alternates and ends with the assistant; prints the offending lines."""
import json
import sys

bad = 0
for n, line in enumerate(open(sys.argv[1], encoding="utf-8"), 1):
    roles = [m["role"] for m in json.loads(line)["messages"]]
    if roles and roles[0] == "system":
        roles = roles[1:]
    want = ["user", "assistant"] * (len(roles) // 2)
    if not roles or roles != want:
        bad += 1
        print(n, roles)
print("bad rows:", bad)
sys.exit(bad > 0)
