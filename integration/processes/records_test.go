package processes

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/event"
)

// A kind is the kind of an entry.
type kind string

const (
	// Writes that the service accepted or refused, in order for each row.
	rowWritten  kind = "row"
	rowRefused  kind = "row refused"
	seatWritten kind = "seat"
	seatDeleted kind = "seat deleted"
	// Effects that the register accepted or refused, in order.
	acceptedEffect kind = "effect"
	refusedEffect  kind = "effect refused"
	// Reports of a worker about itself.
	handlerStarted kind = "handler started"
	libraryEvent   kind = "event"
	stalled        kind = "stalled" // the process was not scheduled for the time For
	measured       kind = "measured"
	// Faults that the test has injected.
	killed    kind = "killed"
	stopped   kind = "stopped"
	continued kind = "continued"
	cut       kind = "cut"
	healed    kind = "healed"
	seatFault kind = "seat fault" // a write of its seat, or the answer, was lost
	slow      kind = "slow"       // the service was slow for the time For
)

// An entry is one line of the records. Which fields are set depends on its kind.
type entry struct {
	Kind       kind
	Wall       int64  `json:",omitempty"` // nanoseconds since 1970; all processes are on one machine
	By         string `json:",omitempty"` // the process that the entry is about
	Shard      string `json:",omitempty"`
	Generation int64  `json:",omitempty"`
	Position   int64  `json:",omitempty"` // the checkpoint of a row, or the record of an effect
	Value      uint64 `json:",omitempty"`
	Sent       int64  `json:",omitempty"`

	Incarnation string `json:",omitempty"` // the owner of a row, or that of a seat
	Counter     int64  `json:",omitempty"` // the counter of a row, or the heartbeat counter of a seat
	Write       string `json:",omitempty"` // the write id of a row
	Made        int64  `json:",omitempty"` // the generation under which the checkpoint was made
	Offered     string `json:",omitempty"` // the incarnation to which a row is offered
	Reason      string `json:",omitempty"`
	Late        bool   `json:",omitempty"` // the request was held back in the network

	Event          string        `json:",omitempty"`
	Cause          event.Cause   `json:",omitempty"`
	Text           string        `json:",omitempty"`
	Failed         bool          `json:",omitempty"` // the handler returned an error
	Gap, Continued time.Duration `json:",omitempty"`
	Dropped        uint64        `json:",omitempty"`
	For            time.Duration `json:",omitempty"`
	From           time.Duration `json:",omitempty"` // the last heartbeat before an eviction

	Goroutines, Handlers int    `json:",omitempty"`
	Heap                 uint64 `json:",omitempty"`
}

func (e entry) at() time.Duration { return time.Duration(e.Wall) }

var (
	processRecords = flag.String("process.records", "", "a file to write the records of a fleet to")
	processJudge   = flag.String("process.judge", "", "a file of records that TestRecords checks")
)

// record writes the entries of the journal to a file.
func (j *journal) record(t *testing.T) {
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
	j.file = json.NewEncoder(file)
}

// TestRecords checks a file of records again. The journal needs nothing else.
func TestRecords(t *testing.T) {
	if *processJudge == "" {
		t.Skip("set -process.judge FILE to check a file of records")
	}
	file, err := os.Open(*processJudge)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	j := newJournal()
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
