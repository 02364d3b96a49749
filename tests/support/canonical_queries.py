"""Queries that are shown as they are written."""

from __future__ import annotations

CANONICAL = """\
query everything($name: String, $ids: [String]?, $v: Vector(3))
  @description("a \\"quoted\\" text")
  @instruction("ask")
  @owner {
  match {
    $p: Person { name: $name, age: -3 }
    $p knows|worksWith{1,} $f
    $p <knows>{2,3} $g
    $p $w:(knows|worksAt) $x
    path $q = shortest $p knows{1,10} $h
    shortest $p knows{1,5} $i
    $f.age > 25 and not ($f.tags contains "a" or $f.name is not null)
    ($f.age - (1 - 2)) * -$p.age / 3 >= 1.5
    $f.id not in [] and $f.slug in $ids
    (-$p.age < 3)
    not {
      $p worksAt $_
    }
    optional {
      $f worksAt $c
      search($c.name, "x")
    }
  }
  return distinct { $p.name, count(distinct $f) as n, count(*) as all, $w.@type }
  having { n > 3, all < 5 }
  order { n desc, nearest($p.vec, $v), lower($p.name) asc }
  limit 10
  offset $n
}

query write($a: String) {
  insert Note { text: $a }
  insert Knows { from: $x, to: $y } from match {
    $x: Person
    $x worksWith $y
  }
    returning { * }
  update Person set { age: age + 1, name: null } where slug = $a or age is null and active
    returning { id, age as years }
  delete Knows where @src = $a
  merge Person { slug: $a } set { age: 3 }
  merge City { name: "Rome" }
}
"""
