# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Builds wheels by meson-python: for Python 3.12 and later one wheel with the stable ABI, for an older
Python and one without the GIL a wheel of its own."""

import sys
import sysconfig

import mesonpy
from mesonpy import build_editable as _build_editable
from mesonpy import (  # noqa: F401 (hooks that pip calls)
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)


def _settings(given):
    """meson-python marks the wheel for the stable ABI unless an option of Meson forbids that."""
    settings = dict(given or {})
    if sys.version_info >= (3, 12) and not sysconfig.get_config_var("Py_GIL_DISABLED"):
        return settings
    arguments = settings.get("setup-args", [])
    arguments = [arguments] if isinstance(arguments, str) else list(arguments)
    settings["setup-args"] = [*arguments, "-Dpython.allow_limited_api=false"]
    return settings


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Hook of PEP 517."""
    return mesonpy.build_wheel(wheel_directory, _settings(config_settings), metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Hook of PEP 660."""
    return _build_editable(wheel_directory, _settings(config_settings), metadata_directory)
