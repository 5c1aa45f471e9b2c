"""By this package's name Spark finds the format "dledger" without being told.

It holds one class and imports nothing but Spark's own base: one ``pyspark_*`` package that fails to
import disables the discovery of all of them. Everything else is imported inside the methods, in the
process that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    from pyspark.sql.datasource import DataSource
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "the format dledger needs Spark 4.2 or newer: pip install 'dledger[spark]'", name=error.name
    ) from None

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """``format("dledger")``: a replicated log as a table, in batch and in streams. Options:
    docs/options.md."""

    @classmethod
    def name(cls) -> str:
        return "dledger"

    def schema(self) -> StructType:
        from dledger.datasource.options.option_table import has_layout

        if has_layout(self.options):
            from dledger.datasource.stores.store_schema import store_schema

            return store_schema(self.options)
        from dledger.datasource.read.reading import schema_of_table
        from dledger.datasource.worker import settle

        settle()
        return schema_of_table(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from dledger.datasource.options.option_table import BATCH, has_layout
        from dledger.datasource.options.sql import for_read
        from dledger.datasource.read.metadata import MetadataReader
        from dledger.datasource.read.reader import LogReader

        options = for_read(self.options, schema, BATCH)
        if has_layout(options):
            from dledger.datasource.stores.stores import StoreReader

            return StoreReader(options, schema)
        given = {name.lower() for name in options}
        if "metadata" in given:
            return MetadataReader(options, schema)
        if "filterpushdown" in given:
            from dledger.datasource.read.pushdown import LimitedReader

            return LimitedReader(options, schema)
        return LogReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from dledger.datasource.write.writer import BatchWriter

        return BatchWriter(self.options, schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from dledger.datasource.options.option_table import STREAM, has_layout
        from dledger.datasource.options.sql import for_read

        options = for_read(self.options, schema, STREAM)
        if has_layout(options):
            from dledger.streaming.stores import StoreStreamReader

            return StoreStreamReader(options, schema)
        from dledger.streaming.reader import LogStreamReader

        return LogStreamReader(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from dledger.streaming.writer import LogStreamWriter

        return LogStreamWriter(self.options, schema, overwrite=overwrite)


__all__ = ["DefaultSource"]
