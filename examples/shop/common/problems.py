"""Errors as problem details (RFC 9457), with the shop's own word for a bad body: 400."""

from dataclasses import replace
from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError

from pillarbox.integrations.fastapi import add_problem_handlers
from pillarbox.integrations.fastapi.problems import problem_of


def add_problems(app: FastAPI) -> None:
    """Answer every error with a problem; call it before routes are added."""
    add_problem_handlers(app)

    @app.exception_handler(RequestValidationError)
    async def bad_body(request: Request, error: RequestValidationError) -> Response:
        return replace(problem_of(error), status=HTTPStatus.BAD_REQUEST).response(request, None)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        # The server closes the connection over such an error: let the client know.
        return replace(problem_of(error), headers={"Connection": "close"}).response(request, None)
