from pathlib import Path

import pytest

from streamshed.engines.spark.session import JavaError, find_java, java_version


def fake_java(home: Path, answer: str, code: int = 0) -> None:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{answer}' >&2\nexit {code}\n")
    program.chmod(0o755)


def test_java_home_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, 'openjdk version "21.0.1" 2023-10-17')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == tmp_path / "bin" / "java"


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaError, match=r"none was found(.|\n)*JAVA_HOME"):
        find_java()


def test_an_empty_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=r"does not start(.|\n)*JAVA_HOME="):
        find_java()


def test_an_old_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, 'java version "1.8.0_202"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=r"too old(.|\n)*got: +8"):
        find_java()


@pytest.mark.parametrize(("answer", "version"), [('openjdk version "17-ea"', 17), ("nothing", None)])
def test_versions(answer: str, version: int | None) -> None:
    assert java_version(answer) == version
