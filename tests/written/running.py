"""Run the text of a program as it is written, in a module of its own."""

import ast
import inspect
from pathlib import Path
from types import FunctionType, ModuleType


def text(name: str) -> str:
    return (Path(__file__).parent / name).read_text()


async def run(program: str, module: ModuleType) -> None:
    """Run a program with `await` allowed at the top."""
    code = compile(program, module.__name__, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = FunctionType(code, vars(module))()
    if inspect.iscoroutine(result):
        await result
