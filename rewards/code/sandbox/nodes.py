"""Linked lists and binary trees in function-call problems, whose rows write them as lists of values.

Runs inside the sandbox. Standard library only.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

NODES = 100_000
"""Nodes of one list or tree that are written out; a cyclic one ends there."""


class ListNode:
    """A node of a linked list, for programs that do not define their own."""

    def __init__(self, val: Any = 0, next: Any = None) -> None:
        self.val, self.next = val, next


class TreeNode:
    """A node of a binary tree, for programs that do not define their own."""

    def __init__(self, val: Any = 0, left: Any = None, right: Any = None) -> None:
        self.val, self.left, self.right = val, left, right


def build_arguments(function: Callable[..., Any], args: Sequence[Any], names: Mapping[str, Any]) -> list[Any]:
    """Return the arguments, with lists of values built up where the function's annotations name a node."""
    code, hints = getattr(function, "__code__", None), getattr(function, "__annotations__", {})
    if code is None or not hints:
        return list(args)
    parameters = code.co_varnames[hasattr(function, "__self__") : code.co_argcount]
    built = [_build(value, str(hints.get(name)), names) for name, value in zip(parameters, args)]  # noqa: B905
    return built + list(args[len(built) :])


def _build(value: Any, hint: str, names: Mapping[str, Any]) -> Any:
    for name, make in (("ListNode", build_list), ("TreeNode", build_tree)):
        if name in hint and isinstance(value, list):
            kind = names.get(name) or {"ListNode": ListNode, "TreeNode": TreeNode}[name]
            several = re.search(r"\b[Ll]ist\[", hint)
            return [make(one, kind) for one in value] if several else make(value, kind)
    return value


def build_list(values: Sequence[Any], kind: Callable[[Any], Any]) -> Any:
    """Return the first node of a linked list of the values; None if there are none."""
    head = None
    for value in reversed(values):
        node = kind(value)
        node.next, head = head, node
    return head


def build_tree(values: Sequence[Any], kind: Callable[[Any], Any]) -> Any:
    """Return the root of the tree whose values are given level by level, None for a missing child."""
    nodes = [None if value is None else kind(value) for value in values]
    children = iter(nodes[1:])
    for node in nodes:
        if node is not None:
            node.left, node.right = next(children, None), next(children, None)
    return nodes[0] if nodes else None


def flatten(value: Any) -> Any:
    """Return a node, or a list of nodes, as the values that a row would write; anything else as it is."""
    if isinstance(value, list) and any(_is_node(item) for item in value[:1000]):
        return [flatten(item) for item in value]
    if not _is_node(value):
        return value
    return _list_values(value) if hasattr(value, "next") else _tree_values(value)


def _is_node(value: Any) -> bool:
    return type(value).__name__ in ("ListNode", "TreeNode") and hasattr(value, "val")


def _list_values(node: Any) -> list[Any]:
    values: list[Any] = []
    while node is not None and len(values) < NODES:
        values.append(node.val)
        node = node.next
    return values


def _tree_values(root: Any) -> list[Any]:
    values: list[Any] = []
    queue = deque([root])
    while queue and len(values) < NODES:
        node = queue.popleft()
        values.append(None if node is None else node.val)
        if node is not None:
            queue += (node.left, node.right)
    while values and values[-1] is None:
        values.pop()
    return values


def returns_node(function: Callable[..., Any]) -> bool:
    """Whether a function is annotated to return a node; its None stands for an empty list or tree."""
    return bool(re.search("ListNode|TreeNode", str(getattr(function, "__annotations__", {}).get("return"))))
