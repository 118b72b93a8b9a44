package kinesistest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/eventstream"
)

const (
	refusedFor       = 5 * time.Second // after a subscription, another one of its shard and consumer is refused
	subscriptionLife = 5 * time.Minute
	heartbeat        = 5 * time.Second // an idle subscription gets an empty event so often
	eventRecords     = 1000
	eventBytes       = 1 << 20
)

// Break lets the open subscriptions of a shard fail, and returns how many there were. An error of
// Kinesis arrives as an exception. io.EOF ends the stream as if its 5 minutes were over. See
// [ErrSilence] and [ErrTorn]. Any other error breaks the connection.
func (st *Stream) Break(shard string, err error) int {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	n := 0
	for _, c := range st.consumers {
		if sub := c.current[shard]; sub != nil {
			sub.stop(err)
			n++
		}
	}
	return n
}

// Subscriptions returns the number of open subscriptions of a shard: the client has not closed
// them, and Kinesis has not ended them.
func (st *Stream) Subscriptions(shard string) int {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	n := 0
	for _, c := range st.consumers {
		if c.current[shard] != nil {
			n++
		}
	}
	return n
}

// A subscription sends the records of one shard to one consumer.
type subscription struct {
	consumer *consumer
	shard    *shard
	after    uint64
	err      error         // why it ends
	changed  chan struct{} // there is something to send, or err is set
	closed   chan struct{} // the client has closed it
}

// admit checks a SubscribeToShard, and returns its consumer.
func (s *Server) admit(in *request) (*subscription, error) {
	st, c := s.consumer(in)
	if c == nil {
		return nil, missing("consumer %s not found", in.ConsumerARN)
	}
	sh, err := st.find(in.ShardID)
	if err != nil {
		return nil, err
	}
	from := in.StartingPosition
	after, err := sh.place(from.Type, from.SequenceNumber, from.Timestamp)
	if err != nil {
		return nil, err
	}
	if status := c.status(); status != "ACTIVE" {
		return nil, inUse("consumer %s is %s", c.name, status)
	}
	if c.calls[sh.Name] == nil {
		c.calls[sh.Name] = new(rate)
	}
	if s.Limits && !c.calls[sh.Name].allow(1) {
		return nil, limited("rate exceeded for consumer %s and shard %s", c.name, sh.Name)
	}
	if begun, ok := c.begun[sh.Name]; ok && time.Since(begun) < refusedFor {
		return nil, inUse("another subscription of shard %s and consumer %s is active", sh.Name, c.name)
	}
	return &subscription{consumer: c, shard: sh, after: after, changed: make(chan struct{}, 1), closed: make(chan struct{})}, nil
}

// subscribe begins a subscription, which takes over from the one before.
func (s *Server) subscribe(in *request) (*subscription, error) {
	sub, err := s.admit(in)
	if err != nil {
		return nil, err
	}
	c, name := sub.consumer, sub.shard.Name
	if old := c.current[name]; old != nil {
		old.stop(inUse("another subscription of shard %s and consumer %s has taken over", name, c.name))
	}
	c.current[name], c.begun[name] = sub, time.Now()
	return sub, nil
}

// stop ends a subscription. The caller holds the lock of the server.
func (sub *subscription) stop(err error) {
	if sub.err == nil {
		sub.err = err
	}
	if !errors.Is(err, ErrSilence) {
		sub.forget()
	}
	sub.notify()
}

func (sub *subscription) forget() {
	if name := sub.shard.Name; sub.consumer.current[name] == sub {
		delete(sub.consumer.current, name)
	}
}

func (sub *subscription) notify() {
	select {
	case sub.changed <- struct{}{}:
	default:
	}
}

// open starts to send, and returns the body of the answer.
func (sub *subscription) open(ctx context.Context) io.ReadCloser {
	reader, writer := io.Pipe()
	body := newBody(ctx, reader, func() {
		mu := &sub.consumer.stream.server.mu
		mu.Lock()
		defer mu.Unlock()
		sub.forget()
		close(sub.closed)
	})
	go func() { _ = writer.CloseWithError(sub.send(writer)) }()
	return body
}

// send sends events until the subscription ends. A nil error ends the stream.
func (sub *subscription) send(to io.Writer) error {
	life, beat := time.NewTimer(subscriptionLife), time.NewTimer(0)
	defer life.Stop()
	defer beat.Stop()
	if _, err := to.Write(initialResponse()); err != nil {
		return err
	}
	for due := false; ; {
		frame, end, err := sub.next(due)
		if err != nil {
			return sub.fail(to, err)
		}
		if due = false; frame != nil {
			if _, err := to.Write(frame); err != nil || end {
				return err
			}
			beat.Reset(heartbeat)
			continue
		}
		select {
		case <-sub.changed:
		case <-beat.C:
			due = true
		case <-life.C:
			return sub.over()
		case <-sub.closed:
			return nil
		}
	}
}

// over ends a subscription whose time is over.
func (sub *subscription) over() error {
	mu := &sub.consumer.stream.server.mu
	mu.Lock()
	defer mu.Unlock()
	sub.forget()
	return nil
}

// fail sends why a subscription ends.
func (sub *subscription) fail(to io.Writer, err error) error {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		_, err = to.Write(exception(api))
		return err
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, ErrSilence):
		<-sub.closed
		return nil
	case errors.Is(err, ErrTorn):
		_, err = to.Write(torn(sub.last()))
	}
	return err
}

// last returns the event that would be next, for a stream that ends in it.
func (sub *subscription) last() []byte {
	mu := &sub.consumer.stream.server.mu
	mu.Lock()
	defer mu.Unlock()
	frame, _, _ := sub.event(true)
	return frame
}

// next returns the next event; none if there are no records and none is due.
func (sub *subscription) next(due bool) (frame []byte, end bool, err error) {
	mu := &sub.consumer.stream.server.mu
	mu.Lock()
	defer mu.Unlock()
	if sub.err != nil {
		return nil, false, sub.err
	}
	sub.consumer.stream.expire()
	return sub.event(due)
}

// event returns an event with records. At the end of a closed shard, the event has the shard's
// children, and no place at which to continue.
func (sub *subscription) event(due bool) (frame []byte, end bool, err error) {
	sh := sub.shard
	first := sh.after(sub.after)
	last, _ := sh.fill(first, eventRecords, eventBytes)
	if end = sh.Closed && last == len(sh.Records); last == first && !due && !end {
		return nil, false, nil
	}
	if last > first {
		sub.after = sh.numbers[last-1]
	}
	out := map[string]any{"Records": sh.wire(first, last), "MillisBehindLatest": sh.behind(last)}
	if out["ContinuationSequenceNumber"] = strconv.FormatUint(sub.after, 10); end {
		out["ContinuationSequenceNumber"], out["ChildShards"] = nil, sub.consumer.stream.children(sh)
		sub.forget()
	}
	payload, err := json.Marshal(out)
	return message(payload, ":message-type", "event", ":event-type", "SubscribeToShardEvent"), end, err
}

func initialResponse() []byte {
	return message([]byte("{}"), ":message-type", "event", ":event-type", "initial-response")
}

func exception(err smithy.APIError) []byte {
	payload, _ := json.Marshal(map[string]string{"message": err.ErrorMessage()})
	return message(payload, ":message-type", "exception", ":exception-type", err.ErrorCode())
}

// torn returns the first half of a frame.
func torn(frame []byte) []byte { return frame[:len(frame)/2] }

// message returns an encoded message. It cannot fail: Kinesis and the server know no larger ones.
func message(payload []byte, headers ...string) []byte {
	m := eventstream.Message{Payload: payload}
	m.Headers.Set(":content-type", eventstream.StringValue("application/json"))
	for i := 0; i < len(headers); i += 2 {
		m.Headers.Set(headers[i], eventstream.StringValue(headers[i+1]))
	}
	var out bytes.Buffer
	if err := eventstream.NewEncoder().Encode(&out, m); err != nil {
		panic("kinesistest: " + err.Error())
	}
	return out.Bytes()
}

// frames answers with a stream of messages.
func frames(body io.ReadCloser) *http.Response {
	header := http.Header{"Content-Type": {"application/vnd.amazon.eventstream"}}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: body}
}

// silence returns a body without a byte.
func silence(ctx context.Context) io.ReadCloser {
	reader, _ := io.Pipe()
	return newBody(ctx, reader, func() {})
}

// A body is closed by its client, or by the end of the request's context.
type body struct {
	*io.PipeReader
	once sync.Once
	then func()
	stop func() bool
}

func newBody(ctx context.Context, reader *io.PipeReader, then func()) *body {
	b := &body{PipeReader: reader, then: then}
	b.stop = context.AfterFunc(ctx, func() { b.close(context.Cause(ctx)) })
	return b
}

func (b *body) close(err error) {
	b.once.Do(func() {
		_ = b.CloseWithError(err)
		b.then()
	})
}

// Close is called by the client.
func (b *body) Close() error {
	b.stop()
	b.close(nil)
	return nil
}
