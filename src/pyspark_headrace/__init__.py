"""Adapter: Spark imports every top-level module called pyspark_… and registers its DefaultSource: no call is needed.

Without filter push-down, because Spark refuses a reader that has it while its setting is off (the default); `register`
of headrace.spark switches both on.
"""

from __future__ import annotations

from headrace.spark.source import HeadraceDataSource


class DefaultSource(HeadraceDataSource):
    pass
