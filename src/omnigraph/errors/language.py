"""Errors of schemas and of queries: text that is wrong, and queries that can't run to their end."""

from __future__ import annotations

from omnigraph.errors.base import OmnigraphError

# ---- schema ----------------------------------------------------------------------------------------------------------


class SchemaError(OmnigraphError):
    """Errors of .pg text carry file, line, column, the offending line and a caret under the place."""

    condition = "schema_error"
    text = "{file}:{line}:{column}: {detail}\n{excerpt}"
    remedy_text = "Correct the schema file at that place."


class SchemaSyntaxError(SchemaError):
    condition = "schema_syntax"


class SchemaRuleError(SchemaError):
    condition = "schema_rule"


class UnsupportedSchemaChange(OmnigraphError):
    condition = "unsupported_schema_change"
    text = "the schema can't be applied: {reasons}"
    remedy_text = "Run `omnigraph schema plan` to see every step, and change the schema file accordingly."

    @property
    def drops_all(self) -> bool:
        """Whether the only obstacle is that every type would be dropped."""
        steps = self.fields.get("plan", {}).get("steps", [])
        refused = [step for step in steps if step["kind"] == "unsupported_change"]
        return bool(refused) and all(step["code"] == "OG-DS-101" for step in refused)


# ---- queries ---------------------------------------------------------------------------------------------------------


class QueryError(OmnigraphError):
    """Errors of .gq text carry file, line, column, the offending line, a caret under the place, and a code."""

    condition = "query_error"
    text = "{file}:{line}:{column}: {code}: {detail}\n{excerpt}"
    remedy_text = "Correct the query at that place."


class QuerySyntaxError(QueryError):
    """`code` is always Q000."""

    condition = "query_syntax"


class QueryCheckError(QueryError):
    """`code` is one of T1 …, `query` the name of the query, `suggestion` the word that was probably meant, or None."""

    condition = "query_check"
    remedy_text = "Correct the query at that place; `omnigraph lint` checks a whole file against a schema."


class ParameterError(QueryError):
    """`problems` are all of them: objects with `parameter`, `detail`, `declared` (its type in the query, or null) and
    `given` (the Python type of the value, or null without one)."""

    condition = "query_parameter"
    text = "the query {query} can't run with these parameters: {shown}"
    remedy_text = "Give every parameter that the query declares a value of its type; those with a ? may be left out."


class QueryValueError(QueryError):
    condition = "query_value"
    text = "the query computes a value that is out of range: {detail}"
    remedy_text = "Limit the rows by a condition that comes before this value, or compute another one."


class QueryTimeout(QueryError):
    condition = "query_timeout"
    text = "the query {query} took longer than {timeout_s} s and was stopped."
    remedy_text = "Ask for less, by a narrower pattern or fewer hops, or allow more time; nothing was changed."


class ResourceLimit(QueryError):
    """`resource` is rows or memory_bytes."""

    condition = "resource_limit"
    text = "the query {query} needs more than its limit: {resource} would be {actual}, and the limit is {limit}."
    remedy_text = "Ask for less, by a narrower pattern or a limit, or allow more; nothing was changed."


class OutOfMemory(QueryError):
    condition = "out_of_memory"
    text = "the query {query} needs more memory than this process can get."
    remedy_text = "Ask for less, by a narrower pattern or a limit; set max_memory_bytes to stop such queries earlier."


class NotOnSpark(QueryError):
    condition = "not_on_spark"
    text = "Spark can't answer this query: it has {feature}."
    remedy_text = "Leave engine out: the query then runs in this process."
