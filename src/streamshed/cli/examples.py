"""The example specs that come with Streamshed."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from streamshed.errors import UnknownNameError, did_you_mean


def example_path(name: str) -> Path:
    """The file of an example: in the installed package, else (a checkout) in the repository.

    >>> example_path("expressway").name
    'expressway.yaml'
    """
    package = Path(str(resources.files("streamshed")))
    folders = (package / "examples", package.parent.parent / "examples")
    for folder in folders:
        if (file := folder / f"{name}.yaml").is_file():
            return file
    known = {file.stem for folder in folders for file in folder.glob("*.yaml")}
    raise UnknownNameError(f"there is no example {name!r}", where="examples", got=name, hint=did_you_mean(name, known))
