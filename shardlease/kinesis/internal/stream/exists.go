package stream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

// identityFor is how long a listing trusts the last known identity of the stream, because Kinesis allows an account 20
// such requests per second. If a shard is missing, the identity is requested at once.
const identityFor = time.Minute

// A summary is Kinesis' description of a stream.
type summary struct {
	identity  string
	arn       string
	key       string // the key that encrypts it
	retention time.Duration
	auto      bool          // the distribution of the stream is AUTO, or was at an earlier description
	asked     time.Time     // when the request was sent
	ahead     time.Duration // how much the clock of Kinesis is ahead of the clock of this machine
}

func (s *Stream) described() summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.summary
}

// Now returns the present time by the clock of Kinesis. It counts from the last description, so it
// stays right when the clock of this machine is set.
func (s *Stream) Now() time.Time {
	known := s.described()
	if known.asked.IsZero() {
		return time.Now()
	}
	return known.asked.Add(known.ahead + time.Since(known.asked))
}

// Retention returns how long the stream keeps its records, as Kinesis last said.
func (s *Stream) Retention() time.Duration { return s.described().retention }

// Identity returns a text that distinguishes this stream from others that have, or had, its
// name: its ARN and creation time. Package kinesis stores it as the state of checkpoints. Only
// the first call sends a request; Shards checks that the identity is still the same.
func (s *Stream) Identity(ctx context.Context) (string, error) {
	err := s.confirm(ctx, math.MaxInt64)
	if err != nil {
		return "", err
	}
	return s.described().identity, nil
}

// ARN returns the ARN of the stream.
func (s *Stream) ARN(ctx context.Context) (string, error) {
	_, err := s.Identity(ctx)
	return s.described().arn, err
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

// confirm describes the stream, unless it was described within the trusted time, and returns
// ErrRecreated if it is another one.
func (s *Stream) confirm(ctx context.Context, trusted time.Duration) error {
	s.mu.Lock()
	known, other := s.summary, s.other
	s.mu.Unlock()
	if known.identity != "" && !other && time.Since(known.asked) < trusted {
		return nil
	}
	next, err := s.describe(ctx)
	if err != nil {
		return fmt.Errorf("describe stream %s: %w", s.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.summary.identity
	if s.other = was != "" && was != next.identity; s.other {
		return fmt.Errorf("stream %s: %w: it is %s, and was %s", s.Name, ErrRecreated, next.identity, was)
	}
	next.auto = next.auto || s.summary.auto
	s.summary = next
	return nil
}

func (s *Stream) describe(ctx context.Context) (summary, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	next := summary{asked: time.Now()}
	input := new(kinesis.DescribeStreamSummaryInput)
	input.StreamName, input.StreamARN = s.address()
	out, err := s.Client.DescribeStreamSummary(ctx, input)
	if err != nil {
		return next, s.explain(describe, err)
	}
	is := out.StreamDescriptionSummary
	if is == nil {
		return next, errors.New("the answer is empty")
	}
	switch is.StreamStatus {
	case types.StreamStatusActive, types.StreamStatusUpdating:
	case types.StreamStatusDeleting: // its shards are missing although they have not expired
		return next, ErrDeleted
	default:
		return next, fmt.Errorf("its status is %s", is.StreamStatus)
	}
	next.arn, next.key = aws.ToString(is.StreamARN), aws.ToString(is.KeyId)
	next.identity = next.arn + "@" + aws.ToTime(is.StreamCreationTimestamp).UTC().Format("2006-01-02T15:04:05.000Z")
	next.retention = time.Duration(aws.ToInt32(is.RetentionPeriodHours)) * time.Hour
	next.auto = is.RecordDistributionStrategy == types.RecordDistributionStrategyAuto
	if server, ok := middleware.GetServerTime(out.ResultMetadata); ok {
		next.ahead = time.Until(server)
	}
	return next, nil
}

// refreshEvery is how often readers describe the stream if no listing does, because its retention
// may change, and so that they find out that it was deleted.
const refreshEvery = 15 * time.Minute

// refresh describes the stream if it was not described for a while. One of the readers does so. It
// returns only errors that would come again.
func (s *Stream) refresh(ctx context.Context) error {
	s.mu.Lock()
	due := time.Since(s.summary.asked) >= refreshEvery && time.Since(s.refreshed) >= refreshEvery
	if due {
		s.refreshed = time.Now()
	}
	s.mu.Unlock()
	if !due {
		return nil
	}
	err := s.confirm(ctx, refreshEvery)
	if err != nil && Passing(err) {
		s.log().Warn("cannot describe the stream", "stream", s.Name, "err", err)
		err = nil
	}
	return err
}

// keeps reports whether packed records stay in an entry although their keys belong to other shards. The
// entry arrived at the time arrived, in an answer that was read at the time read.
//
// A stream may be switched to AUTO distribution at any time, so it is described again, once per answer, if
// the entry may have arrived after the last description. Once AUTO was seen, the records stay: the stream may
// be switched back, and then an older entry does not show how it was distributed.
func (s *Stream) keeps(ctx context.Context, read, arrived time.Time) (bool, error) {
	if s.Foreign == Keep {
		return true, nil
	}
	known := s.described()
	if known.auto || !known.asked.Before(read) || !arrived.IsZero() && known.asked.Add(known.ahead).Sub(arrived) > skew {
		return known.auto, nil
	}
	err := s.confirm(ctx, 0)
	return s.described().auto, err
}

// skew is how much the clocks of Kinesis may differ.
const skew = 10 * time.Second

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
	if s.listsAll() {
		for _, one := range listed {
			for _, parent := range one.parents {
				missing[parent] = true
			}
		}
	}
	var expired []string
	for name := range missing {
		if _, there := listed[name]; there || s.hasExpired(name) {
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

// hasExpired reports whether expire has recorded the shard.
func (s *Stream) hasExpired(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.expired[name]
}

// exists requests an iterator of a shard, to find out whether Kinesis has the shard.
func (s *Stream) exists(ctx context.Context, name string) (bool, error) {
	_, err := s.iterator(ctx, &kinesis.GetShardIteratorInput{ShardId: &name, ShardIteratorType: types.ShardIteratorTypeTrimHorizon})
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("request shard %s of %s: %w", name, s.Name, err)
	}
	return true, nil
}

// expire records shards that Kinesis does not have. First it confirms the identity of the stream: another stream of the
// same name would not have these shards either.
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
