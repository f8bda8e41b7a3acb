"""Dump finished table-booking chats to JSONL, one conversation per row."""
import argparse
import json
import sqlite3

SYSTEM = "You are the host of Bistro Marlene. Take bookings, answer menu questions, never promise a table by the window."


def rows(db):
    con = sqlite3.connect(db)
    cur = con.execute(
        "select chat_id, sender, body from messages where chat_id in "
        "(select id from chats where status = 'done' and consent = 1) order by chat_id, sent_at"
    )
    chat, turns = None, []
    for chat_id, sender, body in cur:
        if chat_id != chat:
            if turns:
                yield turns
            chat, turns = chat_id, []
        role = "assistant" if sender == "host" else "user"
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += "\n" + body
        else:
            turns.append({"role": role, "content": body})
    if turns:
        yield turns


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--db", required=True)
    ap.add_argument("--out", required=True)
    a = ap.parse_args()
    n = 0
    with open(a.out, "w", encoding="utf-8") as f:
        for turns in rows(a.db):
            # need a question first and an answer last
            while turns and turns[0]["role"] != "user":
                turns.pop(0)
            while turns and turns[-1]["role"] != "assistant":
                turns.pop()
            if len(turns) < 2:
                continue
            f.write(json.dumps({"messages": [{"role": "system", "content": SYSTEM}] + turns}, ensure_ascii=False) + "\n")
            n += 1
    print("wrote", n)
