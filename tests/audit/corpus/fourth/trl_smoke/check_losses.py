"""Reads the log of the smoke test and fails when the loss did not fall."""
import ast
import re
import sys

LINE = re.compile(r"\{'loss'.*?\}")


def losses(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        for hit in LINE.findall(f.read()):
            yield float(ast.literal_eval(hit)["loss"])


def main():
    values = list(losses(sys.argv[1]))
    if len(values) < 20:
        sys.exit(f"expected 20 logged steps, found {len(values)}")
    first, last = sum(values[:3]) / 3, sum(values[-3:]) / 3
    print(f"first three steps {first:.3f}, last three steps {last:.3f}")
    if last > 0.8 * first:
        sys.exit("the loss hardly moved")


if __name__ == "__main__":
    main()
