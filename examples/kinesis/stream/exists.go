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

// Reasons why a listing is not trusted. Callers compare with errors.Is.
var (
	// ErrPartial means that a listing leaves out a shard that Kinesis has.
	ErrPartial = errors.New("the listing of the shards leaves out one that exists")
	// ErrRecreated means that the stream was deleted, and another one was created under its
	// name. The positions of the group belong to the old stream.
	ErrRecreated = errors.New("another stream was created under this name: use another group, or delete the leases of this one")
)

// identityFor is how long a listing trusts the last known identity, because Kinesis allows an
// account 20 such requests per second. If a shard is missing, the identity is requested at once.
const identityFor = time.Minute

// Identity returns a text that distinguishes this stream from others that have, or had, its
// name: its ARN and creation time. A consumer stores it as the state of its checkpoints. Only
// the first call sends a request; Shards checks that the identity is still the same.
func (s *Stream) Identity(ctx context.Context) (string, error) {
	if err := s.confirm(ctx, math.MaxInt64); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity, nil
}

// Check returns ErrRecreated if the state of a checkpoint is not the identity of the stream. It
// accepts an empty state, because an import does not know the identity.
func (s *Stream) Check(ctx context.Context, state string) error {
	identity, err := s.Identity(ctx)
	if err == nil && state != "" && state != identity {
		return fmt.Errorf("stream %s: %w: it is %s, and the checkpoint belongs to %s", s.Name, ErrRecreated, identity, state)
	}
	return err
}

// confirm requests the identity, unless it was confirmed within the trusted time, and returns
// ErrRecreated if it has changed.
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
	default: // its shards may be missing although they have not expired
		return fmt.Errorf("describe stream %s: its status is %s", s.Name, status)
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

// complete returns ErrPartial for an incomplete listing. It requests each shard that was listed
// before and is missing now, and each missing parent: a shard should be listed until it expires.
// A listing from Start may leave out parents that exist, so it does not check the parents then.
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

// exists requests an iterator of a shard, to find out whether Kinesis has the shard.
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
		return false, fmt.Errorf("request shard %s of %s: %w", name, s.Name, err)
	}
	return true, nil
}

// expire records shards that Kinesis does not have. Before, it confirms the identity of the
// stream: another stream of the same name would not have these shards either.
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

// find returns a shard, and requests it if it is unknown. A worker may hold a shard that another
// worker has listed first, or that an import has created and a listing from Start leaves out.
// find returns false for a shard that has expired.
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
		one.child = false // only the leases show whether the group has read its parent
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

// continues reports whether the group has read a parent of the shard: a parent is listed, or the
// group has its lease row.
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
