"""The demo: a social and content graph, generated from a seed, loaded, embedded, damaged and repaired.

words      names, topics and sentences: enough for texts that search can distinguish
generate   the files of a graph of any size, with known numbers of invalid rows
story      what `omnigraph demo` does with them, step by step; maintenance_story, query_story and branch_story are
           parts of it
social.pg, pipeline.yaml, questions.gq   the schema, the pipeline file and queries, written beside the data
"""
