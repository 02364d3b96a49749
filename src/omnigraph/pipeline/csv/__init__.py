"""CSV: its options, where its records begin and end, how large files are split, and how rows are read.

| module  | job                                                                                                     |
|---------|---------------------------------------------------------------------------------------------------------|
| options | `CsvFormat`: the options of a source, checked one by one and in pairs                                   |
| records | the borders of records in bytes: quotes, escapes, comments, every kind of line end                     |
| blocks  | a segment in blocks of whole records; the limit of a record                                             |
| splits  | offsets in a large file at which records begin, found by tasks, so that pieces have whole records       |
| read    | one piece as an Arrow table of texts, each row with its line                                            |
| frame   | all pieces as a Spark DataFrame, for SQL                                                                |

Everything that reads CSV uses these modules: a load on either engine, `source` and `sql` of a pipeline file, plans.
Rows and their lines are the same however a file is split, packed or distributed.
"""
