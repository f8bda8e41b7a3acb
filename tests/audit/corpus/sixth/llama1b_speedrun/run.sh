#!/usr/bin/env bash
# AMP=bf16 ./run.sh bench
set -eu
AMP=${AMP:-bf16}
OUT=runs/llama1b-$AMP
case ${1:-train} in
  bench) python speedrun.py --compile --bench 60 ;;
  train) python speedrun.py --compile --out "$OUT" ;;
esac
