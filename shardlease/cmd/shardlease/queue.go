package main

import (
	"slices"
	"time"
)

// A queue keeps the events that a watch has found until no later look can find an earlier one, so that they are printed in
// order of time.
type queue []queued

// A queued event has its place in the order.
type queued struct {
	occurrence
	at time.Time
}

// add adds the events that a look has found, in their order, and when it ended. An event has happened before the look ended:
// what the clock of another machine shows later has the place of the look. Events of one subject keep their order, because
// the changes of hands of a shard follow one another, whatever the clocks of its workers show.
func (q *queue) add(found []occurrence, ended time.Time) {
	for _, e := range found {
		of, i := queued{e, e.At}, len(*q)
		if of.at.After(ended) {
			of.at = ended
		}
		for i > 0 && of.at.Before((*q)[i-1].at) && (*q)[i-1].Subject != e.Subject {
			i--
		}
		if i > 0 && of.at.Before((*q)[i-1].at) {
			of.at = (*q)[i-1].at
		}
		*q = slices.Insert(*q, i, of)
	}
}

// take removes the events that have happened until then, and returns them.
func (q *queue) take(until time.Time) (list []occurrence) {
	for len(*q) > 0 && !(*q)[0].at.After(until) {
		list = append(list, (*q)[0].occurrence)
		*q = (*q)[1:]
	}
	return list
}

// all removes all events, and returns them.
func (q *queue) all() (list []occurrence) {
	for _, e := range *q {
		list = append(list, e.occurrence)
	}
	*q = nil
	return list
}
