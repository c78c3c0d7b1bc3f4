"""What requests may say: what no column could hold is refused before anything is done."""

from typing import Annotated

from pydantic import StringConstraints

Name = Annotated[
    str,
    # PostgreSQL stores no NUL, and a mail or a log no other control character.
    StringConstraints(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f\x7f]+$"),
]
