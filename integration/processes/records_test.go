package processes

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"testing"
	"time"
)

// A kind says what an entry is a record of.
type kind string

const (
	// What the service accepted and refused, in the order in which it did, row by row.
	rowWritten  kind = "row"
	rowRefused  kind = "row refused"
	seatWritten kind = "seat"
	seatDeleted kind = "seat deleted"
	// What the register took and refused, in the order in which it did.
	acceptedEffect kind = "effect"
	refusedEffect  kind = "effect refused"
	// What a worker says of itself.
	handlerStarted kind = "handler started"
	libraryEvent   kind = "event"
	stalled        kind = "stalled" // it was not scheduled For so long
	measured       kind = "measured"
	// What was done to a worker.
	killed    kind = "killed"
	stopped   kind = "stopped"
	continued kind = "continued"
	cut       kind = "cut"
	healed    kind = "healed"
	seatFault kind = "seat fault" // a write of its seat was lost, or its answer
	slow      kind = "slow"       // the service, for so long
)

// An entry is one line of the records. Which fields are set depends on its kind.
type entry struct {
	Kind       kind
	Wall       int64  `json:",omitempty"` // nanoseconds since 1970: all are on one machine
	By         string `json:",omitempty"` // the process
	Shard      string `json:",omitempty"`
	Generation int64  `json:",omitempty"`
	Position   int64  `json:",omitempty"` // of a row: its checkpoint; of an effect: the record
	Value      uint64 `json:",omitempty"`
	Sent       int64  `json:",omitempty"`

	Incarnation string `json:",omitempty"` // of a row: the owner's; of a seat: its own
	Counter     int64  `json:",omitempty"` // of a row; of a seat: how often it was beaten
	Made        int64  `json:",omitempty"` // the generation the checkpoint was made under
	Offered     string `json:",omitempty"` // of a row: the incarnation it is offered to
	Reason      string `json:",omitempty"`
	Late        bool   `json:",omitempty"` // it was kept back in the network

	Event        string        `json:",omitempty"`
	Cause        string        `json:",omitempty"`
	Text         string        `json:",omitempty"`
	Failed       bool          `json:",omitempty"` // the handler returned an error
	Gap, Overlap time.Duration `json:",omitempty"`
	Dropped      uint64        `json:",omitempty"`
	For          time.Duration `json:",omitempty"`
	From         time.Duration `json:",omitempty"` // of an eviction: the last beat

	Goroutines, Handlers int    `json:",omitempty"`
	Heap                 uint64 `json:",omitempty"`
}

func (e entry) at() time.Duration { return time.Duration(e.Wall) }

var (
	processRecords = flag.String("process.records", "", "a file to write the records of a fleet to")
	processJudge   = flag.String("process.judge", "", "a file of records that TestRecords judges")
)

// record writes down what the judge sees.
func (j *judge) record(t *testing.T) {
	if *processRecords == "" {
		return
	}
	file, err := os.OpenFile(*processRecords, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	j.records = json.NewEncoder(file)
}

// TestRecords judges again what was written down, which is all that a judge knows.
func TestRecords(t *testing.T) {
	if *processJudge == "" {
		t.Skip("judges a file of records: -process.judge FILE")
	}
	file, err := os.Open(*processJudge)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	j := newJudge()
	lines := json.NewDecoder(file)
	for {
		var e entry
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		j.saw(e)
	}
	for _, objection := range j.verdict() {
		t.Error(objection)
	}
	t.Log(j.summary())
}
