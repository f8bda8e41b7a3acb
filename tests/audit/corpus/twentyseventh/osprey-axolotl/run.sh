#!/bin/bash
set -e
axolotl preprocess config/osprey.yml
axolotl train config/osprey.yml
