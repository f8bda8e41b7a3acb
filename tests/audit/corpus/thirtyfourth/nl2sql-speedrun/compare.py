import json
import sys

runs = []
for name in sys.argv[1:]:
    with open(name) as f:
        runs.append(json.load(f))
runs.sort(key=lambda r: r["it_per_s"], reverse=True)

print(f"{'run':<12}{'micro':>6}{'it/s':>9}{'MFU':>8}{'loss':>9}")
for r in runs:
    print(f"{r['name']:<12}{r['micro']:>6}{r['it_per_s']:>9.2f}{r['mfu']:>8.1%}{r['final_loss']:>9.4f}")
print(f"fastest: {runs[0]['name']}, {runs[0]['it_per_s'] / runs[-1]['it_per_s']:.2f}x the slowest")
