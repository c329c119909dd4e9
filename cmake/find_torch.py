# SPDX-License-Identifier: Apache-2.0
"""Prints the folder of an installed `torch` package, if it is at least the given version.

Used by tools/setup.sh and cmake/FindLibTorch.cmake, so that both agree. It reads metadata only:
importing torch takes seconds. Prints nothing if there is none or it is too old.
"""
import importlib.metadata
import importlib.util
import re
import sys


def numbers(version):
    return [int(part) for part in re.findall(r"\d+", version)[:2]]


def main():
    try:
        found = importlib.metadata.version("torch")
        spec = importlib.util.find_spec("torch")
    except (importlib.metadata.PackageNotFoundError, ImportError, ValueError):
        return
    if spec and spec.submodule_search_locations and numbers(found) >= numbers(sys.argv[1]):
        print(spec.submodule_search_locations[0])


main()
