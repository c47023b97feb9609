"""Wires the build commands; all metadata is in pyproject.toml."""

from armillary_build import BinaryDistribution, BuildWithNative, PlatformWheel
from setuptools import setup

setup(distclass=BinaryDistribution, cmdclass={"build_py": BuildWithNative, "bdist_wheel": PlatformWheel})
