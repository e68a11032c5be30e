"""No test of data sets reaches a network, nor what a developer has in caches."""

from __future__ import annotations

import socket

import pytest

from optfair.datasets import dataset


@pytest.fixture(autouse=True)
def no_network(monkeypatch, tmp_path_factory):
    def refuse(*args, **kwargs):
        pytest.fail(f"a test asked for the network: {args}")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path_factory.mktemp("scikit_learn_data")))


@pytest.fixture
def no_folder(monkeypatch):
    monkeypatch.delenv("OPTFAIR_DATA", raising=False)


@pytest.fixture
def our_facts(tmp_path, monkeypatch):
    """Return a function that replaces the facts shipped with the package by a text."""

    def write(text: str) -> None:
        folder = tmp_path / "ours"
        folder.mkdir(exist_ok=True)
        (folder / "datasets.toml").write_text(text)
        monkeypatch.setattr(dataset, "OURS", folder)

    return write
