"""Lines as parsers and editors count them: they end at `\\n`, `\\r\\n` and `\\r`, and at nothing else.

`str.splitlines` also splits at form feeds, at U+0085, U+2028 and at five more, which moves all lines below them.
"""

import io


def lines_of(text: str, *, keepends: bool = False) -> list[str]:
    lines = list(io.StringIO(text, newline=""))
    return lines if keepends else [line.rstrip("\r\n") for line in lines]
