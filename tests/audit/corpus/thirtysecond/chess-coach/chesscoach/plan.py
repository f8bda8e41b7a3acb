"""How big a step is, for however many GPUs the job got."""
import os


def world_size():
    # plain `python -m chesscoach.fit` has no launcher and no variable
    return int(os.environ.get("WORLD_SIZE", 1))


def accumulation(rows_per_update, rows_per_gpu):
    chunk = rows_per_gpu * world_size()
    if rows_per_update % chunk:
        raise SystemExit(f"{rows_per_update} rows per update do not divide into {chunk} per pass")
    return rows_per_update // chunk
