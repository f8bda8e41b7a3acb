"""Dynotune beside other trainers: the same documents in the same order, each arm in a process of its own.

    python -m benchmarks.peers --row packed-16k --shared SHARED --out results/
    python -m benchmarks.peers.table

The first measures one row; the second writes the README's tables from what lies in `benchmarks/results/`.
"""
