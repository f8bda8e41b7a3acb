"""Paired measurements: what a change does to speed and memory, shown only where the updates stay the same.

    asking -> workers -> running -> judging -> keeping -> showing
                 parity beside running, foreign behind judging

`result` is the record that judging writes and the rooms behind it read; `command` walks through all of them.
"""
