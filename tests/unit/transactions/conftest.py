from __future__ import annotations

import pytest
from transaction_world import World


@pytest.fixture
def world() -> World:
    return World()
