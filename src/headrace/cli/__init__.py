"""The headrace command: one module per verb, one package per noun, everything loaded only when it is used."""
