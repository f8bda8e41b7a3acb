"""Dynotune beside other trainers: the rows that are measured, and the README's tables of what was.

python -m benchmarks.peers.table
"""
