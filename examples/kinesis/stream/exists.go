package stream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

// What a listing cannot be trusted with; callers branch with errors.Is.
var (
	// ErrPartial: a listing leaves out a shard that Kinesis has.
	ErrPartial = errors.New("the listing of the shards leaves out one that exists")
	// ErrRecreated: the stream was deleted, and another one was made under its name. The
	// positions of the group belong to the old one.
	ErrRecreated = errors.New("another stream was made under this name: use another group, or delete the leases of this one")
)

// identityFor is how long a listing trusts the identity that was seen. Kinesis answers 20
// such questions a second for an account. Whenever a shard is missing it is asked at once.
const identityFor = time.Minute

// Identity tells this stream from others that have, or had, its name: its ARN, and when it
// was made. A consumer keeps it as the state of its checkpoints. Kinesis is asked once: that
// it is still the same is for Shards to see.
func (s *Stream) Identity(ctx context.Context) (string, error) {
	if err := s.confirm(ctx, math.MaxInt64); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity, nil
}

// Check compares the state of a checkpoint with the identity of the stream. No state is
// that of an import, which does not know.
func (s *Stream) Check(ctx context.Context, state string) error {
	identity, err := s.Identity(ctx)
	if err == nil && state != "" && state != identity {
		return fmt.Errorf("stream %s: %w: it is %s, and the checkpoint is of %s", s.Name, ErrRecreated, identity, state)
	}
	return err
}

// confirm asks for the identity, unless it was confirmed not long ago.
func (s *Stream) confirm(ctx context.Context, trusted time.Duration) error {
	s.mu.Lock()
	recent := s.identity != "" && time.Since(s.asked) < trusted
	s.mu.Unlock()
	if recent {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := s.Client.DescribeStreamSummary(ctx, &kinesis.DescribeStreamSummaryInput{StreamName: &s.Name})
	if err != nil {
		return fmt.Errorf("describe stream %s: %w", s.Name, err)
	}
	switch status := out.StreamDescriptionSummary.StreamStatus; status {
	case types.StreamStatusActive, types.StreamStatusUpdating:
	default: // its shards may be missing, and have not expired
		return fmt.Errorf("describe stream %s: it is %s", s.Name, status)
	}
	made := aws.ToTime(out.StreamDescriptionSummary.StreamCreationTimestamp).UTC()
	identity := aws.ToString(out.StreamDescriptionSummary.StreamARN) + "@" + made.Format("2006-01-02T15:04:05.000Z")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.identity != "" && s.identity != identity {
		return fmt.Errorf("stream %s: %w: it is %s, and was %s", s.Name, ErrRecreated, identity, s.identity)
	}
	s.identity, s.asked = identity, time.Now()
	return nil
}

// complete refuses a listing that is partial. Kinesis is asked for each shard that was
// listed before and is missing now, and for each parent that is missing: a shard stays
// listed until it expires. Of a listing from Start parents may be missing that exist.
func (s *Stream) complete(ctx context.Context, listed map[string]shard) error {
	missing := map[string]bool{}
	s.mu.Lock()
	for name := range s.known {
		missing[name] = true
	}
	s.mu.Unlock()
	if s.Start.IsZero() {
		for _, one := range listed {
			for _, parent := range one.parents {
				missing[parent] = true
			}
		}
	}
	var expired []string
	for name := range missing {
		if _, there := listed[name]; there {
			continue
		}
		exists, err := s.exists(ctx, name)
		switch {
		case err != nil:
			return err
		case exists:
			return fmt.Errorf("stream %s: %w: %s", s.Name, ErrPartial, name)
		}
		expired = append(expired, name)
	}
	return s.expire(ctx, expired)
}

// exists asks Kinesis for a shard itself.
func (s *Stream) exists(ctx context.Context, name string) (bool, error) {
	s.mu.Lock()
	expired := s.expired[name]
	s.mu.Unlock()
	if expired {
		return false, nil
	}
	_, err := s.Client.GetShardIterator(ctx, &kinesis.GetShardIteratorInput{
		StreamName: &s.Name, ShardId: &name, ShardIteratorType: types.ShardIteratorTypeTrimHorizon,
	})
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask for shard %s of %s: %w", name, s.Name, err)
	}
	return true, nil
}

// expire remembers shards that Kinesis does not have. Before, it makes sure that the
// stream is there, and is the one that it was: another one does not have them either.
func (s *Stream) expire(ctx context.Context, names []string) error {
	s.mu.Lock()
	names = slices.DeleteFunc(names, func(name string) bool { return s.expired[name] })
	s.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	if err := s.confirm(ctx, 0); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expired == nil {
		s.expired = map[string]bool{}
	}
	for _, name := range names {
		s.expired[name] = true
		delete(s.closed, name)
	}
	return nil
}

// find gives what is known of a shard, and asks if that is nothing: a worker may be given
// a shard that another has found first, or one that an import has left, and that a listing
// from Start does not have. It reports false for a shard that has expired.
func (s *Stream) find(ctx context.Context, name string) (shard, bool, error) {
	if known, ok := s.lookUp(name); ok {
		return known, true, nil
	}
	if _, err := s.Shards(ctx); err != nil {
		return shard{}, false, err
	}
	if known, ok := s.lookUp(name); ok {
		return known, true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	everything, err := s.list(ctx, nil)
	if err != nil {
		return shard{}, false, err
	}
	if one, ok := everything[name]; ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed == nil {
			s.closed = map[string]shard{}
		}
		one.child = false // whether the group has read its parent, only the leases can say
		s.closed[name] = one
		return one, true, nil
	}
	exists, err := s.exists(ctx, name)
	switch {
	case err != nil:
		return shard{}, false, err
	case exists:
		return shard{}, false, fmt.Errorf("stream %s: %w: %s", s.Name, ErrPartial, name)
	}
	return shard{}, false, s.expire(ctx, []string{name})
}

// continues reports whether the group has read a parent of the shard: one that is listed,
// or one that it has a lease of.
func (s *Stream) continues(ctx context.Context, one shard) (bool, error) {
	if one.child || s.Leased == nil {
		return one.child, nil
	}
	for _, parent := range one.parents {
		if leased, err := s.Leased(ctx, parent); leased || err != nil {
			return leased, err
		}
	}
	return false, nil
}
