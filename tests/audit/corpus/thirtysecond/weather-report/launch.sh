#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"
: "${BULLETINS:=/data/bulletins}"
accelerate launch --config_file conf/two_l40s.yaml -m wxtext.train \
  --folder "$BULLETINS/2015-2023" --val-folder "$BULLETINS/2024" "$@"
