"""The command line. `main` is the entry, `app` the table of verbs; one module per plane holds what the verbs do.

    main      arguments in, exit code out: runs the verb, prints its answer or its failure
    app       every verb with its usage and its examples, made into a typer application
    planes    which flags a plane has; what to say about a flag of another plane
    data      verbs on a graph: snapshot, branch, commit, schema show and apply
    load      one of them, large enough for a module
    export    another one
    pipeline  verbs on pipeline files
    shell     the shell, with shell_text, shell_session, shell_complete and shell_prompt
    demo      the demo
    direct    verbs on storage itself: init, schema plan
    local     verbs that touch no graph: version
    target    addressing: from a URI or --store to the graph
    files     reading and writing of files beside the graph
    consent   asking before something on a remote target is destroyed
    output    answers as JSON or as text, the echo of targets
    text      results as lines and tables for people
    progress  one line on a terminal while something takes longer than two seconds
    watch     bars on a terminal while a job of the pipeline runs, lines elsewhere
    failure   exceptions as condition, message, remedy and exit code

Nothing here is imported before it is needed: `version` and `--help` load neither Lance nor Arrow nor rich.
"""
