#!/usr/bin/env bash
set -euo pipefail
axolotl preprocess leases.yml
accelerate launch --num_processes 2 -m axolotl.cli.train leases.yml
