"""What a chat template may cost: it comes from a hub, and Jinja's sandbox bounds neither time nor memory.

Two guards. What one operation of a template asks for is checked before it is done (`7 ** 99999999` would compute, and
`'x' * 10**10` allocate, where nothing can interrupt it: already when the template is compiled, since Jinja folds
constants). And one thread looks four times a second at the rendering that runs, and stops it when it has used too much
processor time or memory.
"""

import ctypes
import functools
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import jinja2
import psutil
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment

LARGEST_TEXT = 128 << 20
"""Characters of a rendered conversation, and of any text on the way to it. A row has at most 64 MiB, so more than this
comes from the template."""

LONGEST = 60.0
"""Seconds of processor time of one rendering. Conversations of 20,000 turns take some, by templates that look back at every
turn; where the system cannot tell a thread's processor time, seconds of the clock."""

MOST_MEMORY = 4 << 30
"""Bytes by which the process may grow during one rendering."""

_SHORT = 1 << 10
"""Characters by which a text may grow unseen."""

_LARGEST_LIST = 1 << 24
_LARGEST_INTEGER = 1 << 16
"""Bits."""

_LOOKS = 0.25
"""Seconds between two looks at the rendering that runs."""

_WIDTH = re.compile(r"\d{8,}")
_RESIZING = ("center", "format", "indent", "join", "replace", "tojson", "wordwrap")
"""Filters whose result may be far larger than what they are given."""

T = TypeVar("T")


STOPPED = "it takes too much time or memory"


class TooCostlyError(jinja2.TemplateRuntimeError):
    """A template asks for more than any conversation needs."""

    def __init__(self, what: str = STOPPED) -> None:
        super().__init__(f"{what}: the chat template is broken, or made to do harm")


class _Generator(CodeGenerator):
    """Jinja's compiler to Python, with `a ~ b` and `a + b` through functions of ours: intercepting `+` as Jinja does would
    make rendering a third slower, and here most sums are of short texts. A sum with a short text of the template's own
    doubles nothing, and most are such, so it stays Python's."""

    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:  # noqa: N802  (Jinja's name)
        if _is_short_text(node.left) or _is_short_text(node.right):
            super().visit_Add(node, frame)
            return
        self.write("environment.plus(")
        self.visit(node.left, frame)
        self.write(", ")
        self.visit(node.right, frame)
        self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802  (Jinja's name)
        self.write("environment.joined((")
        for one in node.nodes:
            self.visit(one, frame)
            self.write(", ")
        self.write("))")


def _is_short_text(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Const) and isinstance(node.value, str) and len(node.value) <= _SHORT


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, with a look at the operations whose results may be far larger than what they are made from, and at
    those that, done again and again, double a text."""

    code_generator_class = _Generator
    intercepted_binops = frozenset({"*", "**", "%"})

    @staticmethod
    def joined(parts: tuple[Any, ...]) -> str:
        """`a ~ b`."""
        _check_whole(part for part in parts if isinstance(part, str))
        return str_join(parts)

    @staticmethod
    def plus(left: Any, right: Any) -> Any:
        """`a + b`."""
        if isinstance(left, str) and isinstance(right, str) and len(left) + len(right) > LARGEST_TEXT:
            raise TooCostlyError(f"a text of {len(left) + len(right):,} characters")
        return left + right

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """What a block, macro or template wrote."""
        parts = list(parts)
        _check_whole(parts)
        return "".join(parts)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "%":
            if isinstance(left, str):
                _check_format(left, right)
        elif operator == "**":
            if isinstance(left, int) and isinstance(right, int) and left.bit_length() * right > _LARGEST_INTEGER:
                raise TooCostlyError("a power of too many digits")
        else:
            _check_product(left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805  (Jinja's names)
        _check_numbers((*args, *kwargs.values()))
        method = getattr(__obj, "__wrapped__", __obj)  # the sandbox wraps `format`
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            _check_method(owner, getattr(method, "__name__", ""), args, kwargs)
        return super().call(__context, __obj, *args, **kwargs)

    def _parse(self, *args: Any, **kwargs: Any) -> Any:
        # Jinja applies filters to constants when it compiles or looks for names. By now all filters are there.
        for name in _RESIZING:
            if not hasattr(self.filters[name], "bounded"):
                self.filters[name] = _bounded_filter(name, self.filters[name])
        return super()._parse(*args, **kwargs)


def _bounded_filter(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)  # with the marks by which Jinja passes contexts as a first argument
    def bounded(*args: Any, **kwargs: Any) -> Any:
        _check_numbers((*args, *kwargs.values()))
        texts = [one for one in args if isinstance(one, str)]
        if name == "format" and texts:
            _check_format(texts[0], (args, kwargs))
        elif name in ("replace", "join") and texts:
            given = [one for one in args if isinstance(one, str | list | tuple)]
            _check_method(
                str(given[0]) if name == "replace" else texts[-1],
                name,
                tuple(given[:1] if name == "join" else given[1:]),
                kwargs,
            )
        return original(*args, **kwargs)

    bounded.bounded = True  # type: ignore[attr-defined]
    return bounded


def _check_whole(parts: Iterable[str]) -> None:
    if (size := sum(map(len, parts))) > LARGEST_TEXT:
        raise TooCostlyError(f"a text of {size:,} characters")


def _check_numbers(values: tuple[Any, ...]) -> None:
    for value in values:
        if isinstance(value, int) and value > LARGEST_TEXT:
            raise TooCostlyError(f"a size above {LARGEST_TEXT:,}")


def _check_product(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        if left.bit_length() + right.bit_length() > _LARGEST_INTEGER:
            raise TooCostlyError("a product of too many digits")
        return
    for one, times in ((left, right), (right, left)):
        if isinstance(times, int) and isinstance(one, str | list | tuple):
            most = LARGEST_TEXT if isinstance(one, str) else _LARGEST_LIST
            if len(one) * times > most:
                raise TooCostlyError(f"a text or list repeated {times:,} times")


def _check_format(text: str, values: Any) -> None:
    """A width in the format itself, or in the values for it."""
    if _WIDTH.search(text) or ("*" in text and _has_large(values)):
        raise TooCostlyError("a format of too many characters")


def _has_large(values: Any) -> bool:
    if isinstance(values, Mapping):
        values = tuple(values.values())
    if isinstance(values, list | tuple):
        return any(_has_large(one) for one in values)
    return isinstance(values, int) and values > LARGEST_TEXT


def _check_method(owner: str, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    size = 0
    texts = [one for one in (*args, *kwargs.values()) if isinstance(one, str)]
    if name in ("format", "format_map"):
        _check_format(owner, (args, dict(kwargs)))
    elif name == "replace" and len(texts) >= 2:
        size = len(owner) + owner.count(texts[0]) * len(texts[1])
    elif name == "join" and args and isinstance(args[0], list | tuple):
        size = len(owner) * len(args[0]) + sum(len(one) for one in args[0] if isinstance(one, str))
    elif name == "expandtabs":
        size = len(owner) + owner.count("\t") * max((one for one in args if isinstance(one, int)), default=8)
    elif name == "translate" and args and isinstance(args[0], Mapping):
        size = len(owner) * max((len(one) for one in args[0].values() if isinstance(one, str)), default=1)
    if size > LARGEST_TEXT:
        raise TooCostlyError(f"a text of {size:,} characters")


class _Watch:
    """One thread that stops the rendering which runs when it costs too much."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: int | None = None
        self._number = 0
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def run(self, render: Callable[[], T]) -> T:
        """Render, in one thread at a time. Raises `TooCostlyError` where that takes too much."""
        try:
            self._enter()
            return render()
        finally:
            self._leave()

    def _enter(self) -> None:
        if self._thread is None or not self._thread.is_alive():  # the first time, or a fork has left it behind
            self._ended.clear()
            self._thread = threading.Thread(target=self._look, name="template watch", daemon=True)
            self._thread.start()
        with self._lock:
            self._number += 1
            self._running = threading.get_ident()

    def _leave(self) -> None:
        with self._lock:
            running, self._running = self._running, None
            stopped, self._stopped = self._stopped, False
        if stopped and running is not None:
            # It had ended by itself just then: what has not been raised yet must not be raised elsewhere.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(running), None)

    def end(self) -> None:
        """End the thread, unless a rendering needs it. The next rendering starts another one."""
        if self._thread is not None and self._running is None:
            self._ended.set()
            self._thread.join()

    def _look(self) -> None:
        process = psutil.Process()
        seen, seconds, memory = 0, 0.0, 0
        while not self._ended.wait(_LOOKS):
            with self._lock:
                if self._running is None or self._stopped:
                    continue
                if self._number != seen:
                    seen, seconds, memory = self._number, _seconds_of(self._running), process.memory_info().rss
                    continue
                grown = process.memory_info().rss - memory
                if _seconds_of(self._running) - seconds > LONGEST or grown > MOST_MEMORY:
                    self._stopped = True
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(self._running), ctypes.py_object(TooCostlyError)
                    )


def _seconds_of(thread: int) -> float:
    """Processor time of a thread; of the clock where the system does not tell."""
    if hasattr(time, "pthread_getcpuclockid"):
        return time.clock_gettime(time.pthread_getcpuclockid(thread))
    return time.monotonic()


_watch = _Watch()


def end_watch() -> None:
    """End the thread that looks at renderings, where none runs: a process with threads cannot be copied."""
    _watch.end()


def within_bounds(render: Callable[[], T]) -> T:
    """Render by transformers' functions, in its sandbox with our bounds. Only one thread at a time may be in here."""
    from transformers.utils import chat_template_utils

    assert hasattr(chat_template_utils, "ImmutableSandboxedEnvironment"), "transformers makes its sandbox elsewhere"
    chat_template_utils.ImmutableSandboxedEnvironment = BoundedEnvironment
    return _watch.run(render)
