"""A Spark job that knows Iceberg only: reads a table by Spark's own runtime and prints what it saw as JSON.

python iceberg_job.py CATALOG_DB S3_ENDPOINT JAR,JAR,…
"""

import json
import sys

from pyspark.sql import SparkSession


def main(catalog: str, endpoint: str, jars: str) -> None:
    named = "spark.sql.catalog.headrace"
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        named: "org.apache.iceberg.spark.SparkCatalog",
        f"{named}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        f"{named}.uri": f"jdbc:sqlite:{catalog}",
        f"{named}.warehouse": "s3://lake/warehouse",
        f"{named}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        f"{named}.s3.endpoint": endpoint,
        f"{named}.s3.path-style-access": "true",
        f"{named}.client.region": "us-east-1",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()

    def one(query: str) -> list[object]:
        return list(spark.sql(query).collect()[0])

    rows, ids, total, amount = one(
        "select count(*), count(distinct id), sum(id), sum(amount) from headrace.sales.orders"
    )
    notes = spark.sql(
        "select coalesce(note, 'null') as note, count(*) as n from headrace.sales.orders group by 1"
    )
    snapshots = spark.sql(
        "select snapshot_id, summary from headrace.sales.orders.snapshots order by committed_at"
    ).collect()
    first = next(row for row in snapshots if int(row.summary.get("added-records", "0")))
    (lost,) = one(
        "select count(*) from (select _topic_partition, count(*) as n, max(_offset) - min(_offset) + 1 as span"
        " from headrace.sales.orders group by _topic_partition) where n != span"
    )
    print(
        json.dumps(
            {
                "rows": rows,
                "ids": ids,
                "sum": total,
                "amount": amount,
                "notes": {row.note: row.n for row in notes.collect()},
                "north": one("select count(*) from headrace.sales.orders where shop = 'north'")[0],
                "partitions": sorted(
                    row.shop
                    for row in spark.sql(
                        "select partition.shop from headrace.sales.orders.partitions"
                    ).collect()
                ),
                "first": one(f"select count(*) from headrace.sales.orders version as of {first.snapshot_id}")[
                    0
                ],
                "offsets": next(
                    (value for name, value in snapshots[-1].summary.items() if "offsets" in name), ""
                ),
                "lost": lost,
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
