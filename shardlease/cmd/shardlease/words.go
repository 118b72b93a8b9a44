package main

import (
	"slices"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// This file has the words for a group of sessions, where shards are called leases and workers are called
// sessions. Only texts for people use these words: the fields of JSON, perfdata and metrics keep their names.

// A vocabulary has the words for a shard, a worker and an owner in one kind of group.
type vocabulary struct{ shard, worker, owner string }

func wordsOf(s *inspect.Snapshot) vocabulary {
	if s.Sessions {
		return vocabulary{"lease", "session", "holder"}
	}
	return vocabulary{"shard", "worker", "owner"}
}

// kindLine marks a listing of a group of sessions.
const kindLine = "group kind: sessions"

// gridOf returns an empty table about a group, in the words of the group.
func gridOf(s *inspect.Snapshot, columns []column) grid {
	g := grid{columns: inWords(s, columns)}
	if s.Sessions {
		g.foot = []string{kindLine}
	}
	return g
}

// inWords returns the columns in the words of the group. It hides the columns that only groups of the other kind have.
func inWords(s *inspect.Snapshot, columns []column) []column {
	columns = slices.Clone(columns)
	for i := range columns {
		if c := &columns[i]; s.Sessions {
			c.head, c.hidden = c.session, c.fleets
		} else {
			c.hidden = c.names
		}
	}
	return columns
}

// needsWorkers refuses a command for workers in a group of sessions, with the error of the Supervisor.
func needsWorkers(s *inspect.Snapshot, verb string) error {
	if !s.Sessions {
		return nil
	}
	return &lease.RuleError{Transition: verb, Key: lease.Plan{Group: s.Group}.Key(), Rule: lease.ErrSessions}
}
