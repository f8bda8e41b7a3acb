#!/usr/bin/env bash
# Everything that needs a GPU, in one call: checks of the loop, then the plain path beside TRL. Results go to the folder $1.
#   benchmarks/on_gpu.sh OUT SHARED_DATA_FOLDER COMMIT
set -uo pipefail
out=$1 shared=$2 commit=$3
failed=0
python3 benchmarks/gpu_checks.py --out "$out/gpu_checks.json" --commit "$commit" || failed=1
python3 benchmarks/plain_path.py --data "$shared/data/sft/sft_mix.jsonl.gz" --tokenizer "$shared/tokenizers/qwen-152k" \
  --out "$out/plain_path.json" --commit "$commit" || failed=1
exit $failed
