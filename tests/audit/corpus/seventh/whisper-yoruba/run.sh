#!/bin/sh
# ./run.sh NAME [more flags]       2x L40S
set -e
NAME=${1:?name of the run}
shift
cd "$(dirname "$0")"
mkdir -p exp/"$NAME"
cp finetune.py exp/"$NAME"/

torchrun --standalone --nproc-per-node 2 finetune.py \
  --data /srv/yoruba --out exp/"$NAME" \
  --bs 16 --accum 2 --steps 8000 --bf16 "$@" 2>&1 | tee -a exp/"$NAME"/log.txt
