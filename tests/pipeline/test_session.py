"""Starting Spark, and what it says where it cannot."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from roskva.pipeline import machine
from roskva.pipeline.machine import PipelineMissing, require_pipeline, what_is_missing


def test_a_session_computes_and_leaves_nothing_where_it_was_started(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert spark.range(10).selectExpr("sum(id) as total").first() == (45,)
    assert list(tmp_path.iterdir()) == []


def test_without_pyspark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_spec", lambda name: None)
    assert "pip install 'roskva[spark]'" in str(what_is_missing())
    with pytest.raises(PipelineMissing):
        require_pipeline()


def test_without_java_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt-get install openjdk-17-jre-headless" in str(what_is_missing())


def test_an_old_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    sentence = what_is_missing()
    assert sentence is not None
    assert f"{java} is Java 8" in sentence
