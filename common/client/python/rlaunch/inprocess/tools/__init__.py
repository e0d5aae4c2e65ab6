"""Tools with which scripts test their own resilience."""

from . import inject_fault

__all__ = ["inject_fault"]
