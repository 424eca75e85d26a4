"""Codec: definitions to start from, one of each kind."""

from __future__ import annotations

EXAMPLES = {
    "archive": 'topics = ["orders"]\npath = "archive/orders"\ncompression = "zstd"\n',
    "table": 'topic = "orders"\nwarehouse = "warehouse"\n'
    '# json_schema = "orders.schema.json"\n# on_error = "dead_letter"\n# partition_by = "day"\n',
    "replay": 'warehouse = "warehouse"\ntable = "topics.orders"\ntopic = "orders-again"\nsince = "2026-01-01T00:00:00Z"\n'
    '# where = "value like \'%\\"paid\\"%\'"\n# rate = 10000\n',
    "transform": 'topics = ["orders"]\ntarget = "orders-paid"\n'
    "sql = \"select key, value from source where get_json_object(value, '$.state') = 'paid'\"\n"
    '# python = "my_module:my_function"\n',
    "aggregate": 'topics = ["orders"]\nvalue_schema = "shop string, amount double"\nwindow = "1 minute"\n'
    'watermark = "2 minutes"\nby = ["value.shop"]\ntarget = "orders-per-minute"\n\n'
    '[aggregates]\norders = "count(*)"\ntotal = "sum(value.amount)"\n',
    "program": 'python = "orders_program:build"\n'
    "# def build(pipeline):\n"
    '#     orders = pipeline.topic("orders")\n'
    '#     pipeline.to_topic("orders-copy", orders.select("key", "value"))\n',
    "mirror": 'topics = ["orders"]\ntarget_bootstrap = "other-cluster:9092"\n',
    "redrive": 'queue = "orders-dead"\n# to = "orders"\n# filter = "header.kind == \'a\'"\n'
    "# sql = \"select key, replace(value, 'EURO', 'EUR') as value, headers, topic from source\"\n",
    "audit": 'topic = "orders"\nwarehouse = "warehouse"\ntable = "topics.orders"\nreport = "report"\n',
}


def example(kind: str, name: str, bootstrap: str) -> str:
    """A definition to start from."""
    body = EXAMPLES[kind]
    head = f'kind = "{kind}"\nname = "{name}"\nbootstrap = "{bootstrap}"\n'
    spark = '\n[spark]\nmaster = "local[*]"\n'
    return head + body + spark
