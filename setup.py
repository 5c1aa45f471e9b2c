"""What is compiled; everything else is in pyproject.toml."""

from setuptools import Extension, setup

# One build serves each Python from 3.11 on. Without a compiler the package is installed without it,
# and Python and NumPy do its work.
LIMITED = {
    "py_limited_api": True,
    "define_macros": [("Py_LIMITED_API", "0x030B0000")],
    "optional": True,
}

setup(
    ext_modules=[
        Extension("dledger._compiled", ["python/dledger/_compiled.c"], **LIMITED),
        Extension(
            "dledger.records.digest._native", ["python/dledger/records/digest/_native.c"], **LIMITED
        ),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
