package processes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A register is the sink of the handlers: for each shard it stores the latest record that was written,
// and its generation. It runs in the test's process and compares generations in the same step as it
// writes. Without its fence it accepts everything, like a sink that cannot compare.
//
// In its protocol each effect is one line, answered by a line "ok" or "stale".
type register struct {
	listener net.Listener
	unfenced bool
	saw      func(entry)
	serving  sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
	values map[string]effect
}

// An effect is one record of a shard, written under a generation.
type effect struct {
	Shard              string
	Generation, Record int64
	Value              uint64 // valueOf of the record
	By                 string // the process that wrote it
	Sent               int64  // when it was sent, by the clock of the worker
}

// valueOf is the content of a record. Streams have no end and are not stored.
func valueOf(shard string, record int64) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s/%d", shard, record)
	return h.Sum64()
}

func newRegister(t *testing.T, fenced bool, saw func(entry)) *register {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &register{listener: listener, unfenced: !fenced, saw: saw, conns: map[net.Conn]bool{}, values: map[string]effect{}}
	r.serving.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

func (r *register) address() string { return r.listener.Addr().String() }

func (r *register) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return // the listener is closed
		}
		r.mu.Lock()
		if r.closed {
			_ = conn.Close()
		} else {
			r.conns[conn] = true
			r.serving.Go(func() { r.serve(conn) })
		}
		r.mu.Unlock()
	}
}

func (r *register) close() {
	r.mu.Lock()
	r.closed = true
	for conn := range r.conns {
		_ = conn.Close()
	}
	r.mu.Unlock()
	_ = r.listener.Close()
	r.serving.Wait()
}

// serve answers one handler. The last line of a dead handler counts too: it was sent, and the network
// does not take it back.
func (r *register) serve(conn net.Conn) {
	defer func() {
		r.mu.Lock()
		delete(r.conns, conn)
		r.mu.Unlock()
		_ = conn.Close()
	}()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		e, err := parseEffect(lines.Text())
		if err != nil {
			return
		}
		answer := "ok\n"
		if !r.write(e) {
			answer = "stale\n"
		}
		if _, err := conn.Write([]byte(answer)); err != nil {
			return
		}
	}
}

// write accepts or refuses an effect. It reports effects to the journal in the order in which they are
// accepted.
func (r *register) write(e effect) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.unfenced || e.Generation >= r.values[e.Shard].Generation
	kind := refusedEffect
	if taken {
		kind = acceptedEffect
		r.values[e.Shard] = e
	}
	r.saw(entry{Kind: kind, By: e.By, Shard: e.Shard, Generation: e.Generation, Position: e.Record, Value: e.Value, Sent: e.Sent})
	return taken
}

func (e effect) line() string {
	return fmt.Sprintf("%s %d %d %d %s %d\n", e.Shard, e.Generation, e.Record, e.Value, e.By, e.Sent)
}

func parseEffect(line string) (effect, error) {
	f := strings.Fields(line)
	if len(f) != 6 {
		return effect{}, fmt.Errorf("not an effect: %q", line)
	}
	generation, err := strconv.ParseInt(f[1], 10, 64)
	record, err2 := strconv.ParseInt(f[2], 10, 64)
	value, err3 := strconv.ParseUint(f[3], 10, 64)
	sent, err4 := strconv.ParseInt(f[5], 10, 64)
	return effect{f[0], generation, record, value, f[4], sent}, errors.Join(err, err2, err3, err4)
}

// errStaleEffect means that the register has an effect of a later generation.
var errStaleEffect = errors.New("the register has been written under a later generation")

// A pen writes to a register through a connection that belongs to one handler.
type pen struct {
	conn    net.Conn
	answers *bufio.Reader
}

func newPen(ctx context.Context, address string) (*pen, error) {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &pen{conn, bufio.NewReaderSize(conn, 64)}, nil
}

// write waits for the answer even if the contexts of the handler end: an effect that was sent cannot be
// called back.
func (p *pen) write(e effect) error {
	if err := p.conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := p.conn.Write([]byte(e.line())); err != nil {
		return err
	}
	answer, err := p.answers.ReadString('\n')
	if err == nil && answer != "ok\n" {
		return errStaleEffect
	}
	return err
}

func (p *pen) close() { _ = p.conn.Close() }

// TestRegister: with its fence the register refuses late effects, and without the fence it accepts
// them.
func TestRegister(t *testing.T) {
	for _, fenced := range []bool{true, false} {
		var seen []kind
		r := newRegister(t, fenced, func(e entry) { seen = append(seen, e.Kind) })
		p, err := newPen(t.Context(), r.address())
		if err != nil {
			t.Fatal(err)
		}
		for generation, late := range map[int64]bool{2: false, 1: true} {
			_ = p.write(effect{Shard: "s", Generation: 2, Record: 1, By: "a"})
			err := p.write(effect{Shard: "s", Generation: generation, Record: 2, By: "a"})
			if want := fenced && late; errors.Is(err, errStaleEffect) != want || !want && err != nil {
				t.Errorf("fence %v, generation %d after 2: %v", fenced, generation, err)
			}
		}
		p.close()
		r.close()
		if len(seen) != 4 {
			t.Errorf("the journal received %v", seen)
		}
	}
}
