"""Run one function or class out of another system's source file, without importing its package.

The definition is cut out of the file's syntax tree and executed as it stands: only decorators, annotations
and inner imports are taken off. A global name that it uses is, in this order, what the caller gives, a
builtin, another definition of the same file, something of the standard library or torch, or an `Inert`.
"""

import ast
import builtins
import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import Any

Given = Mapping[str, Any]
Definition = ast.FunctionDef | ast.ClassDef


class Inert:
    """Stands for what borrowed code touches but the question does not depend on: false, empty, takes all."""

    def __getattr__(self, name: str) -> "Inert":
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Inert()

    def __call__(self, *_: object, **__: object) -> "Inert":
        return Inert()

    def __getitem__(self, _: object) -> "Inert":
        return Inert()

    def __enter__(self) -> "Inert":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return False

    def __gt__(self, _: object) -> bool:
        return False

    __lt__ = __ge__ = __le__ = __gt__

    def __add__(self, _: object) -> "Inert":
        return Inert()

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __add__


class MissingCodeError(LookupError):
    """The file does not define what was asked for."""


@functools.cache
def tree(path: Path) -> ast.Module:
    """The file's syntax tree. Raises MissingCodeError where there is no such file."""
    if not path.is_file():
        raise MissingCodeError(f"{path.name} is not part of this release")
    return ast.parse(path.read_text(encoding="utf-8"))


def find(path: Path, name: str) -> Definition:
    """The definition called `function`, `Class` or `Class.method`.

    Raises MissingCodeError where the file has none.
    """
    scope: list[ast.stmt] = tree(path).body
    found: Definition | None = None
    for part in name.split("."):
        found = next((node for node in _definitions(scope) if node.name == part), None)
        if found is None:
            raise MissingCodeError(f"{path.name} defines no {name}")
        scope = found.body
    if found is None:
        raise MissingCodeError(f"{path.name} defines no {name}")
    return found


def defines(path: Path, name: str) -> bool:
    """Whether the file is there and defines the name."""
    try:
        find(path, name)
    except MissingCodeError:
        return False
    return True


def borrow(path: Path, name: str, given: Given | None = None) -> Any:
    """The named function (a method as a plain function of `self`) or class, ready to be called."""
    return _Borrower(path, dict(given or {})).take(find(path, name))


class _Borrower:
    """One file's globals, filled in as the borrowed definitions need them."""

    def __init__(self, path: Path, given: dict[str, Any]) -> None:
        self.path = path
        self.globals: dict[str, Any] = {"__builtins__": builtins, "__name__": path.stem, **given}

    def take(self, node: Definition) -> Any:
        code, used = _compiled(node, self.path)
        self._supply(used)
        scope: dict[str, Any] = {}
        exec(code, self.globals, scope)
        value = scope[node.name]
        self.globals.setdefault(node.name, value)
        return value

    def _supply(self, used: frozenset[str]) -> None:
        for name in sorted(used):
            if name not in self.globals and not hasattr(builtins, name):
                self.globals[name] = Inert()  # also what stops a cycle
                self.globals[name] = self._resolve(name)

    def _resolve(self, name: str) -> Any:
        for node in tree(self.path).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
                return self.take(node)
            if isinstance(node, ast.Assign) and any(_is(target, name) for target in node.targets):
                return self._value(node.value)
            if isinstance(node, ast.AnnAssign) and _is(node.target, name) and node.value is not None:
                return self._value(node.value)
            if isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name.split(".")[0]) == name:
                        return _imported(node, alias)
        return Inert()

    def _value(self, node: ast.expr) -> Any:
        self._supply(_names(node))
        return eval(compile(ast.Expression(node), str(self.path), "eval"), self.globals)


@functools.cache  # a node is one object for as long as its file's tree is kept, which is until the end
def _compiled(node: Definition, path: Path) -> tuple[CodeType, frozenset[str]]:
    """The bare definition's code, and the names that it uses."""
    bare = _Bare().visit(ast.parse(ast.unparse(node)))
    return compile(ast.fix_missing_locations(bare), str(path), "exec"), _names(bare)


def _names(node: ast.AST) -> frozenset[str]:
    return frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name))


class _Bare(ast.NodeTransformer):
    """Takes off what is beside the question: decorators, annotations, inner imports of other packages."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list = [d for d in node.decorator_list if _is_kept(d)]
        node.returns = None
        parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for parameter in [*parameters, node.args.vararg, node.args.kwarg]:
            if parameter is not None:
                parameter.annotation = None
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.decorator_list = []
        node.bases = []
        node.keywords = []
        return self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if (node.module or "").split(".")[0] in sys.stdlib_module_names:
            return node
        return ast.Pass()

    def visit_Import(self, node: ast.Import) -> ast.AST:
        return node if all(a.name in sys.stdlib_module_names for a in node.names) else ast.Pass()


def _definitions(body: list[ast.stmt]) -> Iterator[Definition]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_kept(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Name) and decorator.id in {"staticmethod", "classmethod", "property"}


def _imported(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> Any:
    module = alias.name if isinstance(node, ast.Import) else (node.module or "")
    root = module.split(".")[0]
    if root != "torch" and root not in sys.stdlib_module_names:
        return Inert()
    if isinstance(node, ast.Import):
        loaded = importlib.import_module(module)
        return loaded if alias.asname else importlib.import_module(root)
    return getattr(importlib.import_module(module), alias.name)


def bind(function: Callable[..., Any], owner: object) -> Callable[..., Any]:
    """The borrowed method, bound to a stand-in for its object."""
    return functools.partial(function, owner)
