import argparse
import csv
import json
import random
from collections import defaultdict

ASK = "Translate the subtitles. Keep one line per cue."


def scenes(paths):
    """Rows: scene id, language, cue number, source, translation."""
    found = defaultdict(list)
    for path in paths:
        with open(path, encoding="utf-8", newline="") as f:
            for scene, lang, cue, src, tgt in csv.reader(f, delimiter="\t", quoting=csv.QUOTE_NONE):
                found[scene, lang].append((int(cue), src.strip(), tgt.strip()))
    for (scene, lang), cues in found.items():
        cues.sort()
        if all(s and t for _, s, t in cues):
            yield lang, "\n".join(s for _, s, _ in cues), "\n".join(t for _, _, t in cues)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tsv", nargs="+", required=True)
    ap.add_argument("--out", required=True)
    args = ap.parse_args()
    rows = sorted(set(scenes(args.tsv)))
    random.Random(42).shuffle(rows)
    with open(args.out, "w", encoding="utf-8") as f:
        for lang, src, tgt in rows:
            row = {"instruction": ASK, "input": f"<2{lang}> {src}", "output": tgt}
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(f"wrote {len(rows)} scenes")


if __name__ == "__main__":
    main()
