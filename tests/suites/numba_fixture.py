"""A plugin of pytest with the fixture that numba-cuda's tests name and their package lacks."""
import pytest


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    request.cls._dump_failed_filechecks = False
