"""A mypy plugin that lists every attribute which the checked sources read, by the class that declares it.

Each line of the file named by SETTING_READS: the attribute's full name, the source's path, the line.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from mypy.plugin import AttributeContext, Plugin
from mypy.types import Type

READS = "SETTING_READS"


class AttributeReads(Plugin):
    """Reports attributes and changes no type."""

    def get_attribute_hook(self, fullname: str) -> Callable[[AttributeContext], Type]:
        def record(context: AttributeContext) -> Type:
            if not context.is_lvalue:
                path = getattr(context.api, "path", "")
                with open(os.environ[READS], "a") as file:
                    file.write(f"{fullname}\t{path}\t{context.context.line}\n")
            return context.default_attr_type

        return record


def plugin(version: str) -> type[Plugin]:
    """Return the plugin, as mypy asks for it."""
    return AttributeReads
