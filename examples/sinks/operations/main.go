// Operations makes an effect happen once that no fence can reach: a payment, a mail,
// whatever a service does for a request that carries an operation id, and never twice
// for the same id.
//
//	go run ./examples/sinks/operations
//
// Worker a is paused when it has sent a payment and has not heard of it. Its successor
// starts at the last checkpoint, and so repeats the record; then a wakes up and sends it
// again as well. The bank pays once, because all three requests carry one id.
//
// An id has in it whatever tells the effect from all others: who has it (the group),
// the shard, the position of the record, and which of the record's effects it is. It has
// nothing in it that is another when somebody else repeats the record: no generation, no
// worker, no time, no chance, and not where a batch happened to begin. For the same
// reason what the request says must follow from the record alone: the first one counts.
//
// Where positions can come to mean other records, because a stream is made anew under
// its old name, something that changes with it belongs into the id, such as when it was
// made. Who rewinds a shard to have its effects once more needs a new prefix.
//
// An id is no fence. It makes a late request harmless because its successor has made the
// same, or will; it does not refuse one, and does not keep the requests of different
// records in order. A service that can compare should get the generation besides.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"

	"github.com/shardlease/shardlease-go/examples/internal/takeover"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
)

// A bank stands in for a service that knows operation ids. It remembers each for as
// long as it may be repeated, and that is for as long as a checkpoint may be behind.
type bank struct {
	mu      sync.Mutex
	done    map[string]int // amounts, by operation id
	paid    int
	repeats int
}

func (b *bank) pay(id string, amount int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, again := b.done[id]; again {
		b.repeats++
		return // the answer is that of the first time
	}
	b.done[id] = amount
	b.paid += amount
}

// operation is the id of one effect of one record.
func operation(t *shardlease.Tenure, record int, effect string) string {
	return fmt.Sprintf("%s/%s/%d/%s", takeover.Group, t.Shard().Name, record, effect)
}

// write pays what a record says. A request whose answer does not come is sent again.
func (b *bank) write(_ context.Context, t *shardlease.Tenure, record int, pause func() bool) error {
	id, amount := operation(t, record, "payment"), 10*record
	b.pay(id, amount)
	if unanswered := pause(); unanswered {
		b.pay(id, amount)
	}
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "operations:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	b := &bank{done: map[string]int{}}
	late, err := takeover.Play(ctx, new(memstore.Store), out, b.write)
	if err := errors.Join(late, err); err != nil {
		return err
	}
	fmt.Fprintf(out, "the bank paid %d, for %d operations; it was asked %d times more, and paid nothing\n", b.paid, len(b.done), b.repeats)
	return nil
}
