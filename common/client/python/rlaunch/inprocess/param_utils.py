"""Parameters of the wrapped function, and checks of arguments."""

from __future__ import annotations

import inspect
import linecache
import re
import sys
import typing
from typing import Any, Callable, Dict, Tuple


def check_type(annotation: Any, cls: type) -> bool:
    """Whether an annotation is this class, or optionally so."""
    if annotation is cls:
        return True
    options = typing.get_args(annotation)
    return cls in options and type(None) in options or any(option is cls for option in options)


def annotations(fn: Callable[..., Any]) -> Dict[str, Any]:
    """What parameters are annotated with; those that are texts are looked up where the function was written."""
    try:
        return typing.get_type_hints(fn)
    except Exception:
        # A name that exists for type checkers only.
        parameters = inspect.signature(fn).parameters.values()
        return {parameter.name: parameter.annotation for parameter in parameters}


def count_type_in_params(fn: Callable[..., Any], cls: type) -> int:
    """How many parameters are annotated with a class."""
    hints = annotations(fn)
    return sum(check_type(hints.get(name), cls) for name in inspect.signature(fn).parameters)


def substitute_param_value(
    fn: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any], subs: Dict[type, Any]
) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """Arguments in which parameters that are annotated with one of these classes have the given values."""
    try:
        signature = inspect.signature(fn)
    except ValueError:
        # Of a function in C nobody knows the parameters.
        return args, kwargs
    hints = annotations(fn)
    asked = {
        name: value for cls, value in subs.items() for name in signature.parameters if check_type(hints.get(name), cls)
    }
    bound = signature.bind_partial(*args, **kwargs)
    bound.arguments.update(asked)
    bound.apply_defaults()
    # What is missing is told as Python tells it.
    signature.bind(*bound.args, **bound.kwargs)
    return bound.args, bound.kwargs


def require_type(argument: str, value: Any, wanted: Any) -> None:
    """An argument is an instance of one of these classes."""
    if not isinstance(value, wanted):
        raise TypeError(f"{argument} takes {_named(wanted)}, got {value!r} of type {type(value).__name__}")


def enforce_type(argument: str, class_or_tuple: Any) -> None:
    """The caller's variable of this name is an instance of one of these classes."""
    require_type(argument, sys._getframe(1).f_locals[argument], class_or_tuple)


def enforce_subclass(argument: str, class_or_tuple: Any) -> None:
    """The caller's variable of this name is a class that inherits from one of these."""
    value = sys._getframe(1).f_locals[argument]
    if not (isinstance(value, type) and issubclass(value, class_or_tuple)):
        raise TypeError(f"{argument} takes a class that is {_named(class_or_tuple)}, got {value!r}")


def enforce_value(condition: Any) -> None:
    """It is true; if not, the error has the caller's line, and the values of its variables in it."""
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
