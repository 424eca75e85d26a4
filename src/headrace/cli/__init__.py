"""The headrace command: one module per verb, one package per noun, everything loaded only when it is used."""

import gc

# Before anything is imported: imports, and a broker that opens thousands of logs, make what stays, and by default Python looks for cycles
# among it over and over. That was a fifth of the CPU of such a start (docs/performance.md).
gc.set_threshold(50_000, 20, 100)
