"""Parameters of the wrapped function, and checks of arguments."""

from __future__ import annotations

import contextlib
import functools
import inspect
import linecache
import re
import sys
import typing
from typing import Any, Callable, Dict, List, Tuple


def check_type(annotation: Any, cls: type) -> bool:
    """Whether an annotation is this class, or a union that contains it."""
    if annotation is cls:
        return True
    options = typing.get_args(annotation)
    return cls in options and type(None) in options or any(option is cls for option in options)


def signature_of(fn: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function. Python 3.14 evaluates annotations on access, and some names exist for type checkers only."""
    if sys.version_info >= (3, 14):
        import annotationlib

        return inspect.signature(fn, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(fn)


def annotations(fn: Callable[..., Any]) -> Dict[str, Any]:
    """The annotations of the parameters. Texts are evaluated in the module of the function, and stay texts if that fails."""
    scope = _scope(fn)
    return {parameter.name: _looked_up(parameter.annotation, scope) for parameter in signature_of(fn).parameters.values()}


def _scope(fn: Any) -> Dict[str, Any]:
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    if isinstance(fn, type):
        fn = fn.__init__
    elif not hasattr(fn, "__globals__") and not inspect.ismethod(fn):
        fn = getattr(fn, "__call__", fn)
    return getattr(inspect.unwrap(getattr(fn, "__func__", fn)), "__globals__", {})


def _looked_up(annotation: Any, scope: Dict[str, Any]) -> Any:
    # Each annotation is evaluated alone, because some names exist for type checkers only.
    holder = lambda: None  # noqa: E731
    holder.__annotations__ = {"one": annotation}
    with contextlib.suppress(Exception):
        return typing.get_type_hints(holder, scope)["one"]
    parts = _alternatives(annotation) if isinstance(annotation, str) else []
    if len(parts) > 1:
        # Python before 3.10 has no `|` of types, and a part of it may be unknown.
        found = [_looked_up(part.strip(), scope) for part in parts]
        known = tuple(part for part in found if not isinstance(part, str))
        return typing.Union[known] if known else annotation
    return annotation


def _alternatives(text: str) -> List[str]:
    """The alternatives of an annotation, separated by `|`. A `|` in brackets separates no alternatives."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign in "[(") - (sign in "])")
        if sign == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def count_type_in_params(fn: Callable[..., Any], cls: type) -> int:
    """The number of parameters that are annotated with a class."""
    return sum(check_type(annotation, cls) for annotation in annotations(fn).values())


def substitute_param_value(
    fn: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any], subs: Dict[type, Any]
) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """Arguments in which parameters that are annotated with one of these classes have the given values."""
    try:
        signature = signature_of(fn)
    except ValueError:
        # Functions in C have no signature.
        return args, kwargs
    hints = annotations(fn)
    asked = {
        name: value for cls, value in subs.items() for name in signature.parameters if check_type(hints.get(name), cls)
    }
    bound = signature.bind_partial(*args, **kwargs)
    bound.arguments.update(asked)
    bound.apply_defaults()
    # Missing arguments raise the error of Python.
    signature.bind(*bound.args, **bound.kwargs)
    return bound.args, bound.kwargs


def require_type(argument: str, value: Any, wanted: Any) -> None:
    """Raises ``TypeError`` unless an argument is an instance of one of these classes."""
    if not isinstance(value, wanted):
        raise TypeError(f"{argument} takes {_named(wanted)}, got {value!r} of type {type(value).__name__}")


def enforce_type(argument: str, class_or_tuple: Any) -> None:
    """Raises ``TypeError`` unless the caller's variable of this name is an instance of one of these classes."""
    require_type(argument, sys._getframe(1).f_locals[argument], class_or_tuple)


def enforce_subclass(argument: str, class_or_tuple: Any) -> None:
    """Raises ``TypeError`` unless the caller's variable of this name is a class that inherits from one of these."""
    value = sys._getframe(1).f_locals[argument]
    if not (isinstance(value, type) and issubclass(value, class_or_tuple)):
        raise TypeError(f"{argument} takes a class that is {_named(class_or_tuple)}, got {value!r}")


def enforce_value(condition: Any) -> None:
    """Raises ``ValueError`` unless the condition is true. The error has the caller's line and the values of its variables."""
    if condition:
        return
    caller = sys._getframe(1)
    line = linecache.getline(caller.f_code.co_filename, caller.f_lineno).strip()
    names = sorted(set(re.findall(r"[^\W\d]\w*", line)) & set(caller.f_locals))
    values = ", ".join(f"{name}={caller.f_locals[name]!r}" for name in names)
    raise ValueError(f"{line or 'what is required'}: this does not hold{f', with {values}' if values else ''}")


def _named(wanted: Any) -> str:
    names = [kind.__name__ for kind in (wanted if isinstance(wanted, tuple) else (wanted,)) if kind is not type(None)]
    return f"{'an' if names[0][:1] in 'AEIOUaeiou' else 'a'} {' or '.join(names)}"
