#!/bin/bash
# one H100; the two arguments override conf/base.yaml
python train.py data=data/stories.jsonl lr=1e-5
