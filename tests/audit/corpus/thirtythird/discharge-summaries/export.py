"""Turns the de-identified XML export into one jsonl row per stay."""
import argparse
import json
import re
from pathlib import Path
from xml.etree import ElementTree

WS = re.compile(r"[ \t]+")


def clean(text):
    text = text.replace("\r\n", "\n").replace("\u00a0", " ")
    return WS.sub(" ", text).strip()


def stays(source):
    for path in sorted(Path(source).glob("*.xml")):
        root = ElementTree.parse(path).getroot()
        for stay in root.iter("stay"):
            notes = [clean(n.text or "") for n in stay.iter("note")]
            course = clean(stay.findtext("hospital_course", ""))
            if not course or not any(notes):
                continue
            yield {"stay": stay.get("id"), "notes": "\n\n".join(n for n in notes if n), "course": course}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--source", required=True)
    ap.add_argument("--out", required=True)
    args = ap.parse_args()
    Path(args.out).parent.mkdir(parents=True, exist_ok=True)
    seen, kept = set(), 0
    with open(args.out, "w", encoding="utf-8") as f:
        for row in stays(args.source):
            if row["stay"] in seen:
                continue
            seen.add(row["stay"])
            kept += 1
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(f"{kept} stays")


if __name__ == "__main__":
    main()
