package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// This file shows which sessions wait for which leases.

// A waiterView is a session that waits for a lease, with the task for which it wants the lease.
type waiterView struct {
	*ownerView
	For *ageView `json:"for,omitempty"`
}

// waitersOf returns the sessions that wait for a lease, the longest wait first.
func waitersOf(of *inspect.Shard) (all []waiterView) {
	for by, age := range of.Waiters() {
		all = append(all, waiterView{ownerOf(by), ageOf(age)})
	}
	return all
}

// A waitView is a lease for which a session waits.
type waitView struct {
	Lease string     `json:"lease"`
	Task  string     `json:"task,omitempty"`
	Since *time.Time `json:"since,omitempty"`
}

// waitsOf returns the waits that the seat of a living session names, the longest first.
func waitsOf(w *inspect.Worker) (all []waitView) {
	if w.Dead {
		return nil
	}
	for _, wait := range w.Seat.Waits {
		all = append(all, waitView{wait.Lease, cmp.Or(wait.Task, w.Seat.Task), stamp(wait.Since)})
	}
	return all
}

// How many waiters of a lease a cell and the command get name.
const (
	mostInCell = 3
	mostInGet  = 20
)

// describeWaiters returns the sessions that wait for a lease, and for how long, in a few words.
func describeWaiters(of *inspect.Shard) string {
	var texts []string
	n := 0
	for by, age := range of.Waiters() {
		if n++; n <= mostInCell {
			texts = append(texts, by.Name+" "+old(age))
		}
	}
	if n > mostInCell {
		texts = append(texts, fmt.Sprintf("%d more", n-mostInCell))
	}
	return strings.Join(texts, ", ")
}

// addWaiters adds the sessions that wait for a lease, and says how many waits no seat names.
func addWaiters(g *grid, s *inspect.Snapshot, of *inspect.Shard) {
	n := 0
	for by, age := range of.Waiters() {
		if n++; n <= mostInGet {
			g.field("waits", "%s, for %s", describeOwner(by), old(age))
		}
	}
	if n > mostInGet {
		g.field("waits", "%s more", counted(n-mostInGet, "session"))
	}
	unnamed := int64(0)
	for i := range s.Workers {
		if w := &s.Workers[i]; w.Waits() > 0 {
			unnamed += w.Seat.WaitsLeft
		}
	}
	if unnamed > 0 {
		g.field("more waits", "%d, for this lease or others: seats name only the oldest", unnamed)
	}
}

// waitsFor adds the leases for which a session waits, and their holders.
func (p *picture) waitsFor(g *grid, w *inspect.Worker) {
	for _, wait := range waitsOf(w) {
		of := p.snapshot.Shard(wait.Lease)
		if of == nil {
			g.field("waits for", "%s", wait.Lease)
			continue
		}
		for by, age := range of.Waiters() {
			if by.Incarnation == w.Seat.Incarnation {
				g.field("waits for", "%s, for %s%s", wait.Lease, old(age), holding(of.Owner))
			}
		}
	}
	if n := w.Seat.WaitsLeft; n > 0 && !w.Dead {
		g.field("waits for", "%d more", n)
	}
}

// holding returns the holder of a lease for the end of a sentence.
func holding(o lease.Owner) string {
	if o.IsZero() {
		return ""
	}
	return ", held by " + o.Name
}

// waits returns for how many leases the sessions wait, and the longest of the waits.
func waits(s *inspect.Snapshot) piece {
	n, longest := 0, inspect.Age{}
	for i := range s.Workers {
		n += s.Workers[i].Waits()
	}
	for i := range s.Shards {
		for _, age := range s.Shards[i].Waiters() {
			if age.D > longest.D {
				longest = age
			}
			break // the first wait is the longest
		}
	}
	switch {
	case n == 0:
		return piece{}
	case !longest.Known:
		return piece{active, counted(n, "wait")}
	}
	return piece{active, counted(n, "wait") + ", longest " + old(longest)}
}
