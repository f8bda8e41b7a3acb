#!/usr/bin/env bash
# What needs a GPU, in calls of a few minutes each. Results go to the folder OUT, as JSON.
#   benchmarks/on_gpu.sh checks OUT SHARED COMMIT       the loop: host waits, masking, resume, precision
#   benchmarks/on_gpu.sh parts OUT SHARED COMMIT        attention, head and LoRA alone: correctness, then times
#   benchmarks/on_gpu.sh peers OUT SHARED COMMIT ROWS   whole training steps beside TRL, by default and tuned
#   benchmarks/on_gpu.sh first_step OUT SHARED COMMIT   what a 7B takes to its first step: a cold process, then warm ones
#   benchmarks/on_gpu.sh floors OUT SHARED COMMIT ROWS  steps of rows by kernel class, each beside its floor
#   benchmarks/on_gpu.sh bench OUT SHARED COMMIT CASES  noise of steps, and the case studies of `dynotune bench`
# SHARED holds `data`, `tokenizers` and `tiny-lm`; FLASH_ATTN may name a folder with a `flash_attn` package for TRL.
# ROWS: names of `python -m benchmarks.peers --list` with commas, all by default; called again it goes on where it was.
# CASES: `noise` and names of `benchmarks/case_list.py` with commas, all by default. What is in OUT is not measured again,
# and what is cut off leaves what it had. `step_noise.json` goes to tests/bench/data/step_noise_DEVICE.json. `peers` and
# `bench` take at most SECONDS_A_CALL, 590 by default.
# On an H200, by estimate: noise 60 s; floor 150, ladder 530, each half of an attribution 520 (measured: 500, 480),
# ladder_dpo 530, liger 180, batch 105 (measured), packing 240, together 500 (measured: 479); rows of peers 80 to 200 each. In calls of 590 s: each of the four
# long ones; `liger,packing`; then peers, with FLASH_ATTN.
# Of an H200 all are there.
# REHEARSE=1 runs the commands of `bench` and `peers` on a CPU, of tiny models.
set -uo pipefail
what=$1 out=$2 shared=$3 commit=$4
if [[ ! $commit =~ ^[0-9a-f]{7,40}$ ]]; then # an empty one would make the next argument the commit, and all rows the default
  echo "COMMIT is a commit's number, not '$commit'" >&2
  exit 2
fi
failed=0
began=$SECONDS
left() { echo $((${SECONDS_A_CALL:-590} - SECONDS + began)); }
noise_of=(--seconds 45 --layers 4 --hidden 2048 --tokens 4096) # 13 ms a step: the device decides, not the host
if [[ -n ${REHEARSE:-} ]]; then noise_of=(--seconds 5); fi
mkdir -p "$out"
case "$what" in
  checks)
    python3 benchmarks/gpu_checks.py --out "$out/gpu_checks.json" --commit "$commit" || failed=1
    ;;
  parts)
    for part in attention head lora elementwise measure memory; do
      python3 "benchmarks/gpu_$part.py" --out "$out" || failed=1
    done
    ;;
  peers)
    timeout -k 10 "$(left)" python3 -m benchmarks.peers --rows "${5:-all}" --shared "$shared" --out "$out" \
      --commit "$commit" --budget "$(($(left) - 10))" ${FLASH_ATTN:+--flash-attn "$FLASH_ATTN"} \
      ${REHEARSE:+--dry} || failed=1
    ;;
  first_step)
    timeout -k 10 "$(left)" python3 -m benchmarks.first_step --out "$out/first_step.json" --commit "$commit" \
      ${REHEARSE:+--dry} || failed=1
    ;;
  floors)
    timeout -k 10 "$(left)" python3 benchmarks/gpu_floors.py --output "$out" --shared "$shared" --commit "$commit" \
      --seconds "$(($(left) - 20))" ${5:+--rows "$5"} ${REHEARSE:+--dry} || failed=1
    ;;
  bench)
    cases=,${5:-noise,floor,together,ladder,ladder_dpo,attribute_alone,attribute_last,liger,batch,packing},
    if [[ $cases == *,noise,* ]]; then
      cases=${cases/,noise,/,}
      if [[ ! -f $out/step_noise.json ]]; then
        timeout -k 5 90 python3 benchmarks/step_noise.py --out "$out/step_noise.json" --commit "$commit" \
          "${noise_of[@]}" || failed=1
      fi
    fi
    cases=${cases#,} cases=${cases%,}
    if [[ -n $cases ]]; then
      # Cases end by their own budget; what hangs in spite of it is ended from here.
      timeout -k 30 "$(($(left) - 30))" python3 -m benchmarks.case_studies --only "$cases" --shared "$shared" \
        --out "$out" --commit "$commit" --budget "$(($(left) - 60))" ${REHEARSE:+--rehearse} || failed=1
    fi
    ;;
  *)
    echo "unknown: $what" >&2
    exit 2
    ;;
esac
exit $failed
