"""What a diagnosis finds is tested where no budget of seconds cuts it short."""

from __future__ import annotations

import pytest

from optfair.diagnosis import conflict


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch):
    monkeypatch.setattr(conflict, "TREE_SECONDS", 600.0)
    monkeypatch.setattr(conflict, "SECONDS", 600.0)
