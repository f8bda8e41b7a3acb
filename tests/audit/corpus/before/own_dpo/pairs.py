def loader():
    yield from ()
