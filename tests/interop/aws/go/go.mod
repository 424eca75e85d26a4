module headrace/interop

go 1.23
