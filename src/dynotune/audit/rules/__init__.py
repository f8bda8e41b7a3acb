"""The rules, one file each: `att001_dense_mask.py` declares ATT001 as `RULE`. Adding a file adds a rule everywhere."""
