#!/usr/bin/env bash
set -euo pipefail
export PYTHONPATH=src
CONFIG="${1:-configs/base.json}"
python -m newsclf.train --config "$CONFIG" "${@:2}"
