"""The map from this checkout's folders to packages; everything else is in pyproject.toml."""

from setuptools import find_packages, setup

ROOTS = {"": "python", "dledger.datasource": "datasource", "dledger.streaming": "streaming"}

setup(
    package_dir=ROOTS,
    packages=[*find_packages("python"), "dledger.datasource", "dledger.streaming"],
    package_data={"dledger": ["py.typed"], "pyspark_dledger": ["py.typed"]},
)
