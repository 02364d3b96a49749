"""A file as users of the reference language have it: no part of it needs to change."""

from __future__ import annotations

from omnigraph.language.query import lint_text
from omnigraph.language.schema import parse_schema

SCHEMA = parse_schema(
    """
    node Task {
      slug: String @key
      title: String
      state: enum(todo, doing, done)
      rank: I32
      due: DateTime?
      labels: [String]?
      text: String?
      text_vector: Vector(4)? @embed("text")
    }
    node Person { slug: String @key  name: String  age: I32? }
    node Remark { slug: String @key  body: String  made: DateTime }
    edge DependsOn: Task -> Task
    edge Related: Task -> Task { why: String?  strength: F64? }
    edge AssignedTo: Task -> Person { role: String? }
    edge RemarkOn: Remark -> Task
    """
)
FILE = """
// ── reads ──
query get($slug: String) @description("One task") @instruction("By slug.") {
    match { $t: Task { slug: $slug } }
    return { $t.slug, $t.title, $t.due }
}
query open_tasks($state: String) {
    match {
        $t: Task { state: $state }
        $t.rank >= 2
        $t.title contains "x"
        $t.labels contains "urgent"
        $t.due <= now()
        $t.due > datetime("2026-01-01T00:00:00Z")
    }
    return { $t.slug, $t.title as name }
    order { $t.due, $t.rank desc }
    limit 20
}
query of_person($slug: String) {
    match {
        $p: Person { slug: $slug }
        $t assignedTo $p
        $t dependsOn{1,3} $d
        $d.state != "done"
        not { $d assignedTo $_ }
    }
    return { $t.slug, $d.slug }
}
query both_ways($slug: String) {
    match {
        $t: Task { slug: $slug }
        $t <related>{1,2} $o
        $t $r:related $n
        $r.strength > 0.5
    }
    return { $o.slug, $n.slug, $r.why }
    order { $r.strength desc }
}
query load() {
    match {
        $p: Person
        $t assignedTo $p
    }
    return {
        $p.name
        count($t) as tasks
        sum($t.rank) as total
        avg($t.rank) as mean
        min($t.due) as first
        max($t.due) as last
    }
    order { tasks desc }
    limit 5
}
query search($q: String) {
    match { $t: Task  search($t.text, $q)  fuzzy($t.title, $q, 2)  match_text($t.text, "in order") }
    return { $t.slug, bm25($t.text, $q) as score }
    order { bm25($t.text, $q) }
    limit 3
}
query semantic($v: Vector(4), $q: String) {
    match { $t: Task }
    return { $t.slug }
    order { rrf(nearest($t.text_vector, $v), bm25($t.text, $q), 30) }
    limit 3
}
query embedded() {
    match { $t: Task }
    return { $t.slug }
    order { nearest($t.text_vector, "a question"), $t.rank }
    limit 3
}

// ── writes ──
query add($slug: String, $title: String, $due: DateTime?) {
    insert Task { slug: $slug, title: $title, state: "todo", rank: 1, due: $due }
}
query remark($slug: String, $task: String, $body: String) {
    insert Remark { slug: $slug, body: $body, made: now() }
    insert RemarkOn { from: $slug, to: $task }
}
query finish($slug: String, $labels: [String]?, $text: String?, $vector: Vector(4)?, $due: DateTime?) {
    update Task set {
        state: "done"
        labels: $labels, text: $text
        text_vector: $vector
        due: $due
    } where slug = $slug
}
query drop($slug: String) {
    delete Task where slug = $slug
    delete AssignedTo where from = $slug
}
"""


def test_a_file_of_the_reference_language_checks_without_a_finding() -> None:
    report = lint_text(FILE, SCHEMA, file="tasks.gq")
    assert [f.message for f in report.findings] == []
    assert len(report.checked) == 12
    assert all("operation" in q for q in report.to_json()["queries"])
