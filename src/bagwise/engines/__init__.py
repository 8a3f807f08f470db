"""Where the work on tables is done: this machine, or a Spark cluster.

layout    which row sits in which bag, from its number alone
cluster   rows put together by bag, in row groups of whole bags
engine    what an engine does; expressions that all of them run, in Ibis
local     threads and DuckDB
spark     Spark 4.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bagwise.engines.engine import Engine


def open_engine(name: str) -> Engine:
    """The engine of a name: local, spark for Spark on this machine, or spark://host:port."""
    if name == "local":
        from bagwise.engines.local import Local

        return Local()
    from bagwise.engines.spark import Spark, connect

    return Spark(connect("local[*]" if name == "spark" else name))
