"""How `make test` spreads the tests over its processes: by file or class, and by server."""

import re
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

_NAMES: Final = "(kafka|nats|postgres15|postgres16|pulsar|rabbitmq|redis)"
_OF_A_TEST: Final = re.compile(rf"\[(?:.*-)?{_NAMES}(?![a-z])")
_BY_NAME: Final = re.compile(rf"^tests/bus/(?!test_{_NAMES}).*::test_(?:\w*_)?{_NAMES}(?![a-z])")
_OF_A_FILE: Final = re.compile(rf"tests/bus/test_{_NAMES}|\[{_NAMES}\]$")


class ByServer(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Keep the tests of a file together, but not those of different servers: many mostly wait.

    A server takes long to start, so its tests go to the process that had them first while others
    find something else to do. Only PostgreSQL 18, which half of the tests want, is in every process.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._owners: dict[str, Any] = {}

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        found = _OF_A_TEST.search(nodeid) or _BY_NAME.search(nodeid)
        return scope if found is None else f"{scope}[{found[found.lastindex or 0]}]"

    def _assign_work_unit(self, node: Any) -> None:
        for scope in self.workqueue:
            if self._suits(scope, node):
                self.workqueue.move_to_end(scope, last=False)
                break
        super()._assign_work_unit(node)

    def _suits(self, scope: str, node: Any) -> bool:
        found = _OF_A_FILE.search(scope)
        return found is None or self._owners.setdefault(found[1] or found[2], node) is node


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByServer:
    return ByServer(config, log)
