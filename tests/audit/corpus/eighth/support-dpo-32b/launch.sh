#!/usr/bin/env bash
# ./launch.sh RECIPE [--flag value ...]
set -euo pipefail
RECIPE=$1; shift
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
export TOKENIZERS_PARALLELISM=false

OUT=$(python - "$RECIPE" <<'PY'
import sys, yaml
print(yaml.safe_load(open(sys.argv[1]))["output_dir"])
PY
)
mkdir -p "$OUT"
cp "$RECIPE" "$OUT/recipe.yaml"

accelerate launch --config_file conf/accelerate.yaml dpo.py --config "$RECIPE" "$@" 2>&1 | tee -a "$OUT/train.log"
