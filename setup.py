"""What is compiled, and where a build has its files; everything else is in pyproject.toml."""

import shutil
import sys
from tempfile import TemporaryDirectory

from setuptools import Extension, setup

# One build serves each Python from 3.11 on. Without a compiler the package is installed without it,
# and Python and Arrow do its work.
LIMITED = {
    "py_limited_api": True,
    "define_macros": [("Py_LIMITED_API", "0x030B0000")],
    "optional": True,
}

# A build leaves nothing in the checkout: it works elsewhere. A source archive is made of files that
# lie below here, so that its list of them is taken away behind it.
scratch = TemporaryDirectory()
elsewhere = {"build": {"build_base": scratch.name}, "egg_info": {"egg_base": scratch.name}}
is_source = "sdist" in sys.argv

setup(
    ext_modules=[
        Extension("dledger._compiled", ["python/dledger/_compiled.c"], **LIMITED),
        Extension(
            "dledger.records.digest._native", ["python/dledger/records/digest/_native.c"], **LIMITED
        ),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} | ({} if is_source else elsewhere),
)
if is_source:
    shutil.rmtree("python/dledger.egg-info", ignore_errors=True)
