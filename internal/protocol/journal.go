package protocol

import (
	"strings"
	"unicode"

	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// This file has the only transition of the journal: an entry is created, and never changes.

// Enter adds an act of an operator to the journal of a group. A reason that is too long, or has control characters, is
// stored without them, because the act has happened already.
func Enter(group string, a lease.Act, s Stamp) (lease.Write, error) {
	a.Group, a.At, a.WriteID, a.Until = group, wall(s.At), s.ID, wall(a.Until)
	for _, text := range []*string{&a.Subject, &a.To, &a.By, &a.Why} {
		*text = attr.Shortened(strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return -1
			}
			return r
		}, strings.ToValidUTF8(*text, "?")), lease.MaxName)
	}
	return checked(lease.Write{Op: lease.OpCreate, Next: a})
}

// decideAct is Decide for the journal. No other write has the same key.
func decideAct(w lease.Write, now lease.Record) Verdict {
	if now != nil && now.Written() == w.ID() {
		return Stored
	}
	return Unknown
}
