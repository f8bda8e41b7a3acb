"""A ratio of speeds in words. Digits that its interval does not bear are not printed."""

NO_EFFECT = "no measured effect"


def ratio_in_words(low: float, estimate: float, high: float) -> str:
    """`1.07x [1.06, 1.08]`."""
    digits = 2 if high - low >= 0.01 else 3
    low_text, text, high_text = (f"{value:.{digits}f}" for value in (low, estimate, high))
    return f"{text}x [{low_text}, {high_text}]"


def gain_in_words(low: float, estimate: float, high: float) -> str:
    """`+6.2 % [5.8, 6.6]`; from twice as fast on the ratio, which is easier to read there."""
    if estimate >= 2:
        return ratio_in_words(low, estimate, high)
    digits = 0 if high - low >= 0.06 else 1
    low, estimate, high = (100 * (value - 1) for value in (low, estimate, high))
    interval = ", ".join(signed(value, digits).removeprefix("+") for value in (low, high))
    return f"{signed(estimate, digits)} % [{interval}]"


def signed(value: float, digits: int) -> str:
    """`+6.2`, and `0.0` for what rounds to nothing."""
    text = f"{value:+.{digits}f}"
    return f"{0:.{digits}f}" if float(text) == 0 else text
