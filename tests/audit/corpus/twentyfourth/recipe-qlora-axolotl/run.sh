#!/usr/bin/env bash
# one 48 GB card
set -e
axolotl preprocess qlora.yml
axolotl train qlora.yml
