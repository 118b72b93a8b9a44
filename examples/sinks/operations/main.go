// Operations makes an effect happen exactly once in a service that cannot check a fence: a
// payment, a mail, or any other request that carries an operation id. The service executes
// each id at most once.
//
//	go run ./examples/sinks/operations
//
// Worker a is paused after it has sent a payment and before the answer arrives. Its successor
// starts at the last checkpoint, and so repeats the record; then a wakes up and sends the
// payment again too. The bank pays once, because all three requests have the same id.
//
// An id must contain everything that distinguishes the effect from all others: the group, the
// shard, the position of the record, and which effect of the record it is. The Operation of a
// fence.Token is such an id. It must not contain
// anything that differs when another worker repeats the record: no generation, worker name,
// time or random number, and not the beginning of a batch. For the same reason the content of
// the request must depend on the record alone, because only the first request counts.
//
// If a stream can be created again under the same name, so that positions denote other
// records, the id must contain something that changes with the stream, such as its creation
// time. To repeat the effects of a shard on purpose, after a rewind, use a new prefix.
//
// An id is no fence. It makes a late request harmless because the successor has sent the same
// request, or will. It does not refuse late requests, and does not order the requests of
// different records. If the service can compare generations, send the generation too.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"sync"

	"github.com/shardlease/shardlease-go/examples/internal/takeover"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/fence"
)

// A bank imitates a service that accepts operation ids. Such a service must remember each id
// for as long as it may be repeated, that is, for as long as a checkpoint may lag behind.
type bank struct {
	mu       sync.Mutex
	done     map[string]bool // the operations, by id
	payments []payment
	repeats  int
}

// A payment is an operation that was executed.
type payment struct {
	id     string
	amount int
}

func (b *bank) pay(id string, amount int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done[id] {
		b.repeats++
		return // a real service returns its first answer
	}
	b.done[id] = true
	b.payments = append(b.payments, payment{id, amount})
}

// paid returns the sum of all payments.
func (b *bank) paid() (sum int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.payments {
		sum += p.amount
	}
	return sum
}

// operation returns the id of one effect of one record.
func operation(t *shardlease.Tenure, record int, effect string) string {
	token, _ := fence.FromContext(t.Context())
	return token.Operation(strconv.Itoa(record), effect)
}

// write makes the payment for a record. It repeats a request without an answer.
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
	b := &bank{done: map[string]bool{}}
	late, err := takeover.Play(ctx, new(memstore.Store), out, b.write)
	if err := errors.Join(late, err); err != nil {
		return err
	}
	fmt.Fprintf(out, "the bank paid %d for %d operations; it paid nothing for %d repeated requests\n", b.paid(), len(b.payments), b.repeats)
	return nil
}
