# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of ncclConfig_t, as the library takes them."""

from __future__ import annotations

from typing import Mapping, Optional, Union

from .errors import InvalidArgumentError

NcclConfig = Mapping[str, Union[int, str]]


def settings_of(config: Optional[NcclConfig]) -> Optional[str]:
    """Returns "name=value,name=value"."""
    if config is None:
        return None
    if not isinstance(config, Mapping):
        raise TypeError(f"nccl_config is {config!r}; pass a dictionary of names and values")
    for name, value in config.items():
        if not isinstance(name, str) or isinstance(value, bool) or not isinstance(value, (int, str)):
            raise TypeError(
                f"nccl_config has {name!r}: {value!r}; names are texts, values whole numbers or texts"
            )
        if "," in str(value):
            raise InvalidArgumentError(f"nccl_config: {name} is {value!r}; it must have no comma")
    return ",".join(f"{name}={value}" for name, value in config.items())
