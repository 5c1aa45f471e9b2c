"""The settings that the group keeps count at this node, over its own, from the entry on that says
so."""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import Final

from dledger.config import GroupConfig, NodeConfig
from dledger.config.dynamic import DYNAMIC, text_of
from dledger.node.context import NodeContext, NodePart

logger = logging.getLogger(__name__)

DEFAULTS: Final = {
    one.name: text_of(one.default)
    for config in (GroupConfig, NodeConfig)
    for one in fields(config)
    if one.name in DYNAMIC
}
OF_GROUP: Final = tuple(one.name for one in fields(GroupConfig) if one.name in DYNAMIC)


class DynamicSettingsFollower(NodePart):
    """Follows the catalog's settings. It is made before the parts that take values from them."""

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._warned: dict[str, str] = {}
        context.events.settings_altered.subscribe(self._altered)
        context.events.settings.subscribe(self._warn_of_others)
        context.status.add(lambda: {"settings_version": context.catalog.settings.version})
        if context.catalog.settings:
            self._altered()

    def _altered(self) -> None:
        current, settings = self._context.current, self._catalog.settings
        if settings.kept == current.kept:  # a change that was refused, or a repeat
            return
        before = current.own_texts | current.kept
        current.keep(settings.kept)
        group = current.group
        self._raft.use_settings({name: getattr(group, name) for name in OF_GROUP})
        self._store.use_limits(current.node)
        now = current.own_texts | current.kept
        told = [
            f"{name} is {text!r}, was {before.get(name)!r}"
            for name, text in now.items()
            if text != before.get(name)
        ]
        logger.info(
            "%s has the group's settings of version %d: %s",
            self._node_id,
            settings.version,
            "; ".join(told) or "what they were",
        )
        self._events.settings()

    def _warn_of_others(self) -> None:
        """Once for each value: the node's own settings name another one than the group's."""
        current = self._context.current
        others = {
            name: text
            for name, text in current.own_texts.items()
            if text not in {current.kept.get(name, text), DEFAULTS[name]}
        }
        told = [
            f"{name} is {current.kept[name]!r}, not {text!r}"
            for name, text in others.items()
            if self._warned.get(name) != text
        ]
        self._warned = others
        if told:
            logger.warning(
                "%s has other settings of its own than its group, whose count: %s; 'dledger "
                "settings' shows and changes those",
                self._node_id,
                "; ".join(told),
            )
