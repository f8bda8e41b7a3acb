"""raw/faq_export.json (a list of {question, answer, lang}) -> one text column."""
import json
import sys

src, dst = sys.argv[1:3]
n = 0
with open(dst, "w", encoding="utf-8") as out:
    for item in json.load(open(src, encoding="utf-8")):
        if item.get("lang", "en") != "en" or not item["answer"].strip():
            continue
        text = f"[INST] {item['question'].strip()} [/INST] {item['answer'].strip()}"
        out.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
        n += 1
print(f"{n} rows")
