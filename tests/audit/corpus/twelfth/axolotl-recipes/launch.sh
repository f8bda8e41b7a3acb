#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"

case "${1:-}" in
  support) CFG=configs/qlora-mistral.yml ;;
  qa)      CFG=configs/lora-short-qa.yml ;;
  *) echo "usage: $0 support|qa" >&2; exit 2 ;;
esac

axolotl preprocess "$CFG"
axolotl train "$CFG"
