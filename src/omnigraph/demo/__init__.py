"""The demo: a social and content graph made up from a seed, loaded, embedded, broken and healed before your eyes.

words      names, topics and sentences: enough for texts that search can tell apart
generate   the files of a graph of any size, with dirt planted in known numbers
story      what `omnigraph demo` does with them, step by step; upkeep_story, ask_story and branch_story are
           parts of it
social.pg, pipeline.yaml, questions.gq   the schema, the pipeline file and queries, written beside the data
"""
