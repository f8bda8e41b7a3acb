# Discord export of our sessions -> sessions.jsonl. The DM is the assistant, everyone else is "user".
import json, re, sys

DM = "Grumbold"
SYS = "You are the dungeon master of a slow, talkative campaign. Describe, then ask what the party does."
ooc = re.compile(r"^\s*(\(\(|//|ooc\b)", re.I)

def chunks(msgs, most=40):
    cur = []
    for m in msgs:
        body = m["content"].strip()
        if not body or ooc.match(body):
            continue
        who = m["author"]["name"]
        role = "assistant" if who == DM else "user"
        if role == "user":
            body = f"{who}: {body}"
        if cur and cur[-1]["role"] == role:
            cur[-1]["content"] += "\n" + body
        else:
            if len(cur) >= most and role == "user":
                yield cur
                cur = []
            if cur or role == "user":
                cur.append({"role": role, "content": body})
    yield cur

with open("sessions.jsonl", "w", encoding="utf-8") as out:
    for path in sys.argv[1:]:
        for c in chunks(json.load(open(path, encoding="utf-8"))["messages"]):
            while c and c[-1]["role"] != "assistant":
                c.pop()
            if len(c) >= 2:
                out.write(json.dumps({"messages": [{"role": "system", "content": SYS}, *c]}, ensure_ascii=False) + "\n")
