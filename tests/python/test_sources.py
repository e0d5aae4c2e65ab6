"""Check that the package runs with Python 3.9: it uses no newer syntax, and no newer names of the standard library."""

import ast
import glob
import os
import unittest

import rlaunch

OLDEST = (3, 9)
HOME = os.path.dirname(os.path.abspath(rlaunch.__file__))

# Names of the standard library, and arguments of its functions, that came later and are likely to be used here.
YOUNGER_NAMES = {
    "ExceptionGroup",
    "BaseExceptionGroup",
    "EncodingWarning",
    "aiter",
    "anext",
    "add_note",
    "batched",
    "pairwise",
    "chdir",
    "aclosing",
    "pidfd_send_signal",
    "assert_never",
    "assert_type",
    "Concatenate",
    "LiteralString",
    "Never",
    "NotRequired",
    "ParamSpec",
    "Required",
    "Self",
    "StrEnum",
    "ReprEnum",
    "TypeAlias",
    "TypeAliasType",
    "TypeGuard",
    "TypeIs",
    "TypeVarTuple",
    "Unpack",
    "override",
    "reveal_type",
    "dataclass_transform",
    "KW_ONLY",
    "EnumCheck",
    "orig_argv",
    "stdlib_module_names",
    "exception",
    "UTC",
    "getencoding",
    "process_cpu_count",
    "ShutDown",
    "setprofile_all_threads",
    "settrace_all_threads",
    "unshare",
    "setns",
    "Barrier",
    "_current_exceptions",
}
YOUNGER_MODULES = {"tomllib", "annotationlib", "pathlib.types", "concurrent.interpreters", "compression", "string.templatelib"}
YOUNGER_ARGUMENTS = {"dataclass": {"slots", "kw_only", "weakref_slot"}, "zip": {"strict"}, "Thread": {"context"}, "field": {"kw_only"}}


def sources():
    paths = sorted(glob.glob(os.path.join(HOME, "**", "*.py"), recursive=True))
    assert len(paths) > 30, paths
    return paths


def called(node):
    """The last part of the name of a called function."""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def younger(tree, own=frozenset()):
    """Names in a file that the oldest Python does not have, with their lines."""
    found = []
    asks = {id(inner) for node in ast.walk(tree) if asks_the_version(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in asks:
            continue
        words = []
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in own:
            words = [node.attr] if node.attr in YOUNGER_NAMES else []
        elif isinstance(node, ast.Name):
            words = [node.id] if node.id in YOUNGER_NAMES and node.id not in own else []
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            words = [alias.name for alias in node.names if alias.name in YOUNGER_NAMES]
            words += [node.module] if node.module in YOUNGER_MODULES else []
        elif isinstance(node, ast.Import):
            words = [alias.name for alias in node.names if alias.name in YOUNGER_MODULES]
        elif isinstance(node, ast.Call):
            given = {keyword.arg for keyword in node.keywords}
            words = sorted(YOUNGER_ARGUMENTS.get(called(node), set()) & given)
        found += [(word, node.lineno) for word in words]
    return found


def asks_the_version(node):
    """Whether this is a function that checks the version of Python. Its code is not checked."""
    return isinstance(node, ast.FunctionDef) and any(getattr(inner, "attr", "") == "version_info" for inner in ast.walk(node))


class Sources(unittest.TestCase):
    def test_the_oldest_python_reads_all_files(self):
        for path in sources():
            with self.subTest(os.path.relpath(path, HOME)):
                with open(path, encoding="utf-8") as file:
                    text = file.read()
                # Annotations with newer syntax are text for the oldest Python.
                tree = ast.parse(text, path, feature_version=OLDEST)
                future = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
                later = [
                    node.lineno
                    for node in ast.walk(tree)
                    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and is_type(node.left) and is_type(node.right)
                ]
                self.assertTrue(future or not later, f"unions of types in lines {later}")
                self.assertEqual(younger(tree, imported(tree)), [])

    def test_newer_names_are_found(self):
        for text in ("match x:\n    case 1: pass", "try: pass\nexcept* OSError: pass"):
            with self.assertRaises(SyntaxError):
                ast.parse(text, feature_version=OLDEST)
        for text, word in (
            ("from typing import Self", "Self"),
            ("import tomllib", "tomllib"),
            ("zip(a, b, strict=True)", "strict"),
            ("enum.StrEnum", "StrEnum"),
            ("def f():\n    sys._current_exceptions()", "_current_exceptions"),
            ("@dataclasses.dataclass(slots=True)\nclass A: pass", "slots"),
        ):
            self.assertEqual([name for name, _ in younger(ast.parse(text))], [word])
        asks = "def f():\n    if sys.version_info >= (3, 10):\n        sys._current_exceptions()"
        self.assertEqual(younger(ast.parse(asks)), [])


def is_type(node):
    return isinstance(node, ast.Name) and node.id in ("int", "str", "bytes", "float", "None") or getattr(node, "value", 0) is None


def imported(tree):
    """Names of our own modules in a file, which are no names of the standard library."""
    return {
        (alias.asname or alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level > 0
        for alias in node.names
    } | {"log", "self"}


if __name__ == "__main__":
    unittest.main()
