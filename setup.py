"""The map from this checkout's folders to packages, and what is compiled; everything else is in
pyproject.toml."""

from setuptools import Extension, find_packages, setup

ROOTS = {"": "python", "dledger.datasource": "datasource", "dledger.streaming": "streaming"}
BESIDE = [
    ".".join(["dledger", folder, *inside.split(".")]) if inside else f"dledger.{folder}"
    for folder in ("datasource", "streaming")
    for inside in ["", *find_packages(folder)]
]

# One build serves each Python from 3.11 on. Without a compiler the package is installed without it,
# and NumPy does its work.
LIMITED = {
    "py_limited_api": True,
    "define_macros": [("Py_LIMITED_API", "0x030B0000")],
    "optional": True,
}

setup(
    package_dir=ROOTS,
    packages=[*find_packages("python"), *BESIDE],
    package_data={"": ["py.typed", "*.pyi"]},
    exclude_package_data={"": ["*.c"]},
    ext_modules=[
        Extension(
            "dledger.records.digest._native", ["python/dledger/records/digest/_native.c"], **LIMITED
        ),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
