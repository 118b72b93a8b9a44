// Package outcome judges a run of the consumer. It shares no code with the consumer: it packs records, and reads the
// stream and the leases through the AWS SDK, according to their documentation, so that errors in the consumer's encoding,
// order or positions cannot hide themselves.
package outcome

import (
	"crypto/sha256"
	"fmt"
)

// A Digest identifies the bytes of a record.
type Digest [sha256.Size]byte

// A Verdict is the result of comparing the effects of a key with the records that were put.
type Verdict struct{ Records, Lost, Twice, Late, Foreign int }

// Add adds up the verdicts of keys.
func (v *Verdict) Add(w Verdict) {
	v.Records += w.Records
	v.Lost += w.Lost
	v.Twice += w.Twice
	v.Late += w.Late
	v.Foreign += w.Foreign
}

// Faults returns the number of records that differ from those that were put.
func (v Verdict) Faults() int { return v.Lost + v.Twice + v.Late + v.Foreign }

func (v Verdict) String() string {
	return fmt.Sprintf("%d records: %d lost, %d twice, %d out of order, %d with other bytes", v.Records, v.Lost, v.Twice, v.Late, v.Foreign)
}

// Compare compares the effects of a key with the records that were put, in order. No two records
// of a key may have the same bytes.
func Compare(put, effects []Digest) Verdict {
	v := Verdict{Records: len(effects)}
	at := map[Digest]int{}
	for i, digest := range put {
		at[digest] = i
	}
	seen, last := map[int]bool{}, -1
	for _, effect := range effects {
		i, known := at[effect]
		switch {
		case !known:
			v.Foreign++
			continue
		case seen[i]:
			v.Twice++
		case i < last:
			v.Late++
		}
		seen[i], last = true, max(last, i)
	}
	v.Lost = len(put) - len(seen)
	return v
}
