"""Codec: the filter language: which records a subscription, a view, a tail or a Spark job wants. Pure.

    tag in ("eu", "us") and value.amount > 100 and not exists(header.test)

Parsed once, then a plain function of one record. There are no loops, no regular expressions and no user functions, and
length and depth are bounded, so a hostile expression costs no more than its own size (specs: D3).
"""

from headrace.records.filters.compile import Filter, FilterInput
from headrace.records.filters.language import compile_filter
from headrace.records.filters.policy import compile_policy
from headrace.records.filters.syntax import FilterProblem

__all__ = ["Filter", "FilterInput", "FilterProblem", "compile_filter", "compile_policy"]
