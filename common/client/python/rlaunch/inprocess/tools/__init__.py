"""What scripts test their own resilience with."""

from . import inject_fault

__all__ = ["inject_fault"]
