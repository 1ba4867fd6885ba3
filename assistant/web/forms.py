"""A form of one of our pages: its fields, after its token was compared."""

from __future__ import annotations

from typing import Annotated

from fastapi import Form, HTTPException, Request

from rerail.assistant.web.guard import token_fits


def written_here(request: Request, token: Annotated[str, Form(max_length=200)] = "") -> str:
    """Return who writes; used by every route that changes something.

    Raises:
        HTTPException: The form is not one of this session's pages.
    """
    given = request.headers.get("x-csrf-token") or token
    if not token_fits(request, given):
        raise HTTPException(403, "the form is too old or from elsewhere; load the page again")
    person: str = request.state.person
    return person
