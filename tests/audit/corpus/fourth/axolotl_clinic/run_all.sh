#!/usr/bin/env bash
# Both stages, one after the other, on 4 x A100 80GB. Started again by cron when the
# machine was rebooted: finished stages are skipped, a half one goes on from its
# last checkpoint.
set -euo pipefail
cd "$(dirname "$0")"
for cfg in configs/*.yml; do
    out=$(sed -n 's/^output_dir: *//p' "$cfg")
    [ -e "$out/DONE" ] && continue
    axolotl preprocess "$cfg"
    axolotl train "$cfg"
    touch "$out/DONE"
done
