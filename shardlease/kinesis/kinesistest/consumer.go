package kinesistest

import (
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

// Limits of the consumers of a stream, and how long their changes take.
const (
	mostConsumers = 20
	mostCreating  = 5
	creating      = 10 * time.Second
	deleting      = 5 * time.Second
)

// A consumer is a consumer of enhanced fan-out that is registered with a stream.
type consumer struct {
	stream    *Stream
	name, arn string
	created   time.Time
	left      time.Time                // when it was deregistered
	current   map[string]*subscription // by shard
	begun     map[string]time.Time     // when the last subscription of a shard began
	calls     map[string]*rate
}

func (c *consumer) status() types.ConsumerStatus {
	switch {
	case !c.left.IsZero():
		return types.ConsumerStatusDeleting
	case time.Since(c.created) < creating:
		return types.ConsumerStatusCreating
	}
	return types.ConsumerStatusActive
}

func (c *consumer) wire() map[string]any {
	return map[string]any{
		"ConsumerARN": c.arn, "ConsumerName": c.name, "ConsumerStatus": c.status(), "ConsumerCreationTimestamp": seconds(c.created),
	}
}

// end ends all subscriptions.
func (c *consumer) end(err error) {
	for _, sub := range c.current {
		sub.stop(err)
	}
}

// Consumers returns the names of the registered consumers, in the order of their registration.
func (st *Stream) Consumers() []string {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	var names []string
	for _, c := range st.registered() {
		names = append(names, c.name)
	}
	return names
}

// registered returns the consumers, and forgets those whose deletion is complete.
func (st *Stream) registered() []*consumer {
	st.consumers = slices.DeleteFunc(st.consumers, func(c *consumer) bool {
		return !c.left.IsZero() && time.Since(c.left) >= deleting
	})
	return st.consumers
}

// consumer returns the consumer of a request; nil if there is none.
func (s *Server) consumer(in *request) (*Stream, *consumer) {
	for _, st := range s.streams {
		for _, c := range st.registered() {
			if c.arn == in.ConsumerARN || in.ConsumerARN == "" && c.name == in.ConsumerName && st.arn == in.StreamARN {
				return st, c
			}
		}
	}
	return nil, nil
}

func (s *Server) register(in *request) (any, error) {
	st, err := s.find(in)
	if err != nil {
		return nil, err
	}
	if _, c := s.consumer(in); c != nil {
		return nil, inUse("consumer %s exists", in.ConsumerName)
	}
	young := 0
	for _, c := range st.registered() {
		if c.status() == types.ConsumerStatusCreating {
			young++
		}
	}
	if young >= mostCreating || len(st.consumers) >= mostConsumers {
		return nil, limited("stream %s has %d consumers, %d of them in CREATING", st.name, len(st.consumers), young)
	}
	c := &consumer{stream: st, name: in.ConsumerName, created: time.Now(), current: map[string]*subscription{},
		begun: map[string]time.Time{}, calls: map[string]*rate{}}
	c.arn = fmt.Sprintf("%s/consumer/%s:%d", st.arn, c.name, c.created.Unix())
	st.consumers = append(st.consumers, c)
	return map[string]any{"Consumer": c.wire()}, nil
}

func (s *Server) describeConsumer(in *request) (any, error) {
	st, c := s.consumer(in)
	if c == nil {
		return nil, missing("consumer %s%s not found", in.ConsumerName, in.ConsumerARN)
	}
	out := c.wire()
	out["StreamARN"] = st.arn
	return map[string]any{"ConsumerDescription": out}, nil
}

func (s *Server) deregister(in *request) (any, error) {
	_, c := s.consumer(in)
	if c == nil {
		return nil, missing("consumer %s%s not found", in.ConsumerName, in.ConsumerARN)
	}
	c.left = time.Now()
	c.end(missing("consumer %s was deregistered", c.name))
	return map[string]any{}, nil
}

func (s *Server) listConsumers(in *request) (any, error) {
	st, t, err := s.page(in)
	if err != nil {
		return nil, err
	}
	end, next := s.cut(in, &t, len(st.registered()), 100)
	consumers := []map[string]any{}
	for _, c := range st.consumers[t.At:end] {
		consumers = append(consumers, c.wire())
	}
	out := map[string]any{"Consumers": consumers}
	if next != "" {
		out["NextToken"] = next
	}
	return out, nil
}

func inUse(format string, args ...any) error {
	return &types.ResourceInUseException{Message: new(fmt.Sprintf(format, args...))}
}

func limited(format string, args ...any) error {
	return &types.LimitExceededException{Message: new(fmt.Sprintf(format, args...))}
}
