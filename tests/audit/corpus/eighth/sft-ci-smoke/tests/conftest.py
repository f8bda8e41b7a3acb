import pytest


def pytest_addoption(parser):
    parser.addoption("--saved", required=True)


@pytest.fixture
def saved(request):
    return request.config.getoption("--saved")
