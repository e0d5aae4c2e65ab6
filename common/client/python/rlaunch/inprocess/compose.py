"""Several hooks or policies as one."""

import types
import warnings
from typing import Any, Callable, Optional, TypeVar

from .param_utils import signature_of

T = TypeVar("T")

_BASETYPE = 1 << 10
"""Py_TPFLAGS_BASETYPE: flag of types that can be base classes."""


def find_common_ancestor(*instances: Any) -> Optional[type]:
    """The nearest class of which all arguments are instances, and that is no composition."""
    first, *others = instances
    for ancestor in type(first).__mro__:
        if not issubclass(ancestor, Compose) and all(isinstance(other, ancestor) for other in others):
            return ancestor
    return None


class Compose:
    """Composition of hooks or policies. ``Compose(a, b, c)(x)`` is ``a(b(c(x)))``, so the last one runs first. It is an instance of the class that
    all of them have in common.
    """

    instances: tuple = ()

    def __new__(cls, *instances: Callable[[T], T]) -> Any:
        if not instances:
            raise TypeError("Compose needs at least one callable")
        for number, instance in enumerate(instances, 1):
            if not callable(instance):
                raise TypeError(f"Compose takes callables, such as hooks or policies: number {number} is {instance!r} of type {type(instance).__name__}")
        ancestor = find_common_ancestor(*instances)
        # The type of functions cannot be a base class.
        can_be_base = ancestor not in (None, object) and bool(ancestor.__flags__ & _BASETYPE)
        bases = (Compose, ancestor) if can_be_base else (Compose,)
        made = types.new_class("DynamicCompose", bases, exec_body=lambda body: body.update(__module__=__name__))
        composed = object.__new__(made)
        composed.instances = instances
        return composed

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: `__new__` makes the whole object."""

    def __call__(self, *args: Any) -> Any:
        result: Any = None
        for instance in reversed(self.instances):
            result = instance(*(args or ()))
            if result is None and args and args != (None,):
                warnings.warn(f"{instance!r} was given {args!r} and has returned nothing: the next one gets None", stacklevel=2)
            takes_any = bool(signature_of(instance).parameters)
            args = (result,) if takes_any and not isinstance(result, tuple) else result
        return result
