package kinesistest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

const (
	iteratorLife = 5 * time.Minute
	tokenLife    = 5 * time.Minute
	bytesPerSec  = 2 << 20
	mostRecords  = 10_000
)

// A rate allows a number of requests per second.
type rate struct{ recent []time.Time }

func (r *rate) allow(most int) bool {
	now := time.Now()
	r.recent = slices.DeleteFunc(r.recent, func(at time.Time) bool { return now.Sub(at) >= time.Second })
	if len(r.recent) >= most {
		return false
	}
	r.recent = append(r.recent, now)
	return true
}

func throttled(what string) error {
	return &types.ProvisionedThroughputExceededException{Message: new("rate exceeded for " + what)}
}

// find returns the stream of a request.
func (s *Server) find(in *request) (*Stream, error) {
	arn := in.StreamARN
	if arn == "" {
		arn = "arn:aws:kinesis:" + region + ":" + account + ":stream/" + in.StreamName
	}
	if st := s.byARN(arn); st != nil {
		return st, nil
	}
	return nil, missing("stream %s%s under account %s not found", in.StreamName, in.StreamARN, account)
}

func (s *Server) byARN(arn string) *Stream {
	return s.first(func(st *Stream) bool { return st.arn == arn })
}

func (s *Server) numbered(number int) *Stream {
	return s.first(func(st *Stream) bool { return st.number == number })
}

func (s *Server) first(which func(*Stream) bool) *Stream {
	if i := slices.IndexFunc(s.streams, which); i >= 0 {
		return s.streams[i]
	}
	return nil
}

func (s *Server) describe(in *request) (any, error) {
	st, err := s.find(in)
	if err != nil {
		return nil, err
	}
	st.expire()
	open := 0
	for _, sh := range st.shards {
		if !sh.Closed {
			open++
		}
	}
	strategy := types.RecordDistributionStrategyUserPartitionKey
	if st.auto {
		strategy = types.RecordDistributionStrategyAuto
	}
	return map[string]any{"StreamDescriptionSummary": map[string]any{
		"StreamName": st.name[strings.LastIndex(st.name, "/")+1:], "StreamARN": st.arn, "StreamStatus": cmp.Or(st.status, types.StreamStatusActive),
		"StreamCreationTimestamp": seconds(st.created), "OpenShardCount": open, "ConsumerCount": len(st.consumers),
		"RetentionPeriodHours": math.Ceil(st.retention().Hours()), "EnhancedMonitoring": []any{}, "EncryptionType": "NONE",
		"StreamModeDetails": map[string]any{"StreamMode": "ON_DEMAND"}, "RecordDistributionStrategy": strategy,
		"MaxRecordSizeInKiB": largest >> 10,
	}}, nil
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// A token is the place of a listing.
type token struct {
	Stream, At int
	Given      time.Time
	Type       string
	Since      float64
	After      string
}

// page reads a token, or begins a listing. It returns the stream too.
func (s *Server) page(in *request) (*Stream, token, error) {
	if in.NextToken == "" {
		st, err := s.find(in)
		if err != nil {
			return nil, token{}, err
		}
		after := in.ExclusiveStartShardID
		if in.ShardFilter.Type == string(types.ShardFilterTypeAfterShardId) {
			after = in.ShardFilter.ShardID
		}
		return st, token{Stream: st.number, Type: in.ShardFilter.Type, Since: in.ShardFilter.Timestamp, After: after}, nil
	}
	var t token
	switch err := json.Unmarshal([]byte(in.NextToken), &t); {
	case err != nil:
		return nil, t, invalid("the token is invalid")
	case in.StreamName != "" || in.ExclusiveStartShardID != "" || in.ShardFilter.Type != "":
		return nil, t, invalid("NextToken and StreamName cannot be provided together")
	case time.Since(t.Given) > tokenLife:
		return nil, t, &types.ExpiredNextTokenException{Message: new("the token has expired")}
	}
	st := s.numbered(t.Stream)
	if st == nil {
		return nil, t, missing("the stream of the token does not exist")
	}
	return st, t, nil
}

// cut returns the end of a page of n items, and the token of the next page.
func (s *Server) cut(in *request, t *token, n, most int) (end int, next string) {
	for _, limit := range []int{s.PageSize, in.MaxResults} {
		if limit > 0 {
			most = min(most, limit)
		}
	}
	t.At = min(t.At, n)
	if end = min(n, t.At+most); end == n {
		return end, ""
	}
	following := *t
	following.At, following.Given = end, time.Now()
	text, _ := json.Marshal(following)
	return end, string(text)
}

func (s *Server) listShards(in *request) (any, error) {
	st, t, err := s.page(in)
	if err != nil {
		return nil, err
	}
	st.expire()
	end, next := s.cut(in, &t, len(st.shards), 1000)
	shards := []map[string]any{}
	for _, sh := range st.shards[t.At:end] {
		if st.Omit != nil && st.Omit(sh.Name) || !t.lists(st, sh) {
			continue
		}
		numbers := map[string]string{"StartingSequenceNumber": strconv.FormatUint(sh.first, 10)}
		if sh.Closed {
			numbers["EndingSequenceNumber"] = strconv.FormatUint(sh.end(), 10)
		}
		one := map[string]any{"ShardId": sh.Name, "HashKeyRange": sh.keys(), "SequenceNumberRange": numbers}
		for i, parent := range sh.Parents {
			one[[]string{"ParentShardId", "AdjacentParentShardId"}[i]] = parent
		}
		shards = append(shards, one)
	}
	out := map[string]any{"Shards": shards}
	if next != "" {
		out["NextToken"] = next
	}
	return out, nil
}

// lists reports whether a listing includes a shard.
func (t token) lists(st *Stream, sh *shard) bool {
	closedBefore := !sh.ClosedAt.IsZero() && seconds(sh.ClosedAt) < t.Since
	switch types.ShardFilterType(t.Type) {
	case types.ShardFilterTypeAtLatest:
		return !sh.Closed
	case types.ShardFilterTypeAtTimestamp:
		return !closedBefore && (sh.opened.IsZero() || seconds(sh.opened) <= t.Since)
	case types.ShardFilterTypeFromTimestamp:
		return !closedBefore
	case types.ShardFilterTypeAtTrimHorizon:
		return !slices.ContainsFunc(st.shards, func(other *shard) bool { return slices.Contains(sh.Parents, other.Name) })
	}
	return t.After == "" || sh.Name > t.After
}

// An iterator is a place in a shard: after a sequence number.
type iterator struct {
	stream int
	shard  string
	after  uint64
	given  time.Time
}

func (i iterator) String() string {
	return fmt.Sprintf("%s/%d/%d/%d", i.shard, i.after, i.given.UnixNano(), i.stream)
}

func parseIterator(text string) (i iterator, err error) {
	parts := strings.Split(text, "/")
	if len(parts) != 4 {
		return i, invalid("invalid ShardIterator")
	}
	var given int64
	_, err = fmt.Sscan(strings.Join(parts[1:], " "), &i.after, &given, &i.stream)
	if err != nil {
		return i, invalid("invalid ShardIterator")
	}
	i.shard, i.given = parts[0], time.Unix(0, given)
	return i, nil
}

func (s *Server) getIterator(in *request) (any, error) {
	st, err := s.find(in)
	if err != nil {
		return nil, err
	}
	sh, err := st.find(in.ShardID)
	if err != nil {
		return nil, err
	}
	if s.Limits && !sh.lookups.allow(5) {
		return nil, throttled("shard " + sh.Name)
	}
	after, err := sh.place(in.ShardIteratorType, in.StartingSequenceNumber, in.Timestamp)
	if err != nil {
		return nil, err
	}
	return map[string]any{"ShardIterator": iterator{st.number, sh.Name, after, time.Now()}.String()}, nil
}

// place returns the sequence number after which a reader begins.
func (sh *shard) place(kind, sequence string, since float64) (uint64, error) {
	n, err := strconv.ParseUint(sequence, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		n, err = math.MaxInt64, nil // later than any record: a sequence number of another stream
	}
	switch types.ShardIteratorType(kind) {
	case types.ShardIteratorTypeTrimHorizon:
		return 0, nil
	case types.ShardIteratorTypeLatest:
		return sh.end(), nil
	case types.ShardIteratorTypeAfterSequenceNumber:
		if err == nil {
			return n, nil
		}
	case types.ShardIteratorTypeAtSequenceNumber:
		if err == nil && n <= sh.end() {
			return max(n, 1) - 1, nil
		}
	case types.ShardIteratorTypeAtTimestamp:
		for i, r := range sh.Records {
			if r.Arrived.IsZero() || seconds(r.Arrived) >= since {
				return sh.numbers[i] - 1, nil
			}
		}
		return sh.end(), nil
	}
	return 0, invalid("StartingSequenceNumber %q or type %q is invalid", sequence, kind)
}

// end returns the sequence number of the last record of a shard, also if it has expired.
func (sh *shard) end() uint64 {
	return max(sh.last, sh.first-1)
}

// after returns the index of the first record after a sequence number.
func (sh *shard) after(n uint64) int {
	at, _ := slices.BinarySearch(sh.numbers, n+1)
	return at
}

func (s *Server) getRecords(in *request) (any, error) {
	at, err := parseIterator(in.ShardIterator)
	if err != nil {
		return nil, err
	}
	if time.Since(at.given) > iteratorLife {
		return nil, &types.ExpiredIteratorException{Message: new("the iterator is older than 5 minutes")}
	}
	st := s.numbered(at.stream)
	if st == nil || in.StreamARN != "" && in.StreamARN != st.arn {
		return nil, missing("the stream of the iterator does not exist")
	}
	sh, err := st.find(at.shard)
	switch {
	case err != nil:
		return nil, err
	case in.Limit > mostRecords:
		return nil, invalid("Limit must be at most %d", mostRecords)
	case s.Limits && (time.Now().Before(sh.free) || !sh.reads.allow(5)):
		return nil, throttled("shard " + sh.Name)
	case in.DryRun:
		return nil, nil
	}
	first := sh.after(at.after)
	last := first
	if st.Empty == nil || !st.Empty() {
		most := mostRecords
		if in.Limit > 0 {
			most = in.Limit
		}
		var size int
		last, size = sh.fill(first, most, largest)
		if size > bytesPerSec {
			sh.free = time.Now().Add(time.Duration(size) * time.Second / bytesPerSec)
		}
	}
	if last > first {
		at.after = sh.numbers[last-1]
	}
	at.given = time.Now()
	out := map[string]any{"Records": sh.wire(max(first-st.Redeliver, 0), last), "MillisBehindLatest": sh.behind(last)}
	if sh.Closed && last == len(sh.Records) {
		out["ChildShards"] = st.children(sh)
	} else {
		out["NextShardIterator"] = at.String()
	}
	return out, nil
}

// fill returns how far an answer reaches that begins at a record: at least one record, if there is
// one.
func (sh *shard) fill(first, most, bytes int) (last, size int) {
	for last = first; last < min(len(sh.Records), first+most); last++ {
		length := len(sh.Records[last].Data) + len(sh.Records[last].Key)
		if last > first && size+length > bytes {
			break
		}
		size += length
	}
	return last, size
}

// A wired is a record in an answer.
type wired struct {
	SequenceNumber              string
	PartitionKey                string `json:",omitempty"`
	Data                        []byte
	ApproximateArrivalTimestamp float64 `json:",omitempty"`
	EncryptionType              string
}

func (sh *shard) wire(first, last int) []wired {
	records := make([]wired, 0, last-first)
	for _, r := range sh.Records[first:last] {
		one := wired{SequenceNumber: r.Sequence, PartitionKey: r.Key, Data: r.Data, EncryptionType: "NONE"}
		if one.Data == nil {
			one.Data = []byte{}
		}
		if !r.Arrived.IsZero() {
			one.ApproximateArrivalTimestamp = seconds(r.Arrived)
		}
		records = append(records, one)
	}
	return records
}

// behind returns the milliseconds that the records from an index on have waited; 0 if there are
// none.
func (sh *shard) behind(from int) int64 {
	if from >= len(sh.Records) {
		return 0
	}
	if arrived := sh.Records[from].Arrived; !arrived.IsZero() {
		return max(time.Since(arrived).Milliseconds(), 1)
	}
	return int64(len(sh.Records)-from) * 1000
}

func (s *Server) putRecord(in *request) (any, error) {
	st, err := s.find(in)
	if err != nil || in.DryRun {
		return nil, err
	}
	sh, sequence, err := st.put(in.PartitionKey, in.ExplicitHashKey, in.Data)
	if err != nil {
		return nil, err
	}
	return map[string]any{"ShardId": sh.Name, "SequenceNumber": sequence, "EncryptionType": "NONE"}, nil
}

func (s *Server) putRecords(in *request) (any, error) {
	st, err := s.find(in)
	switch {
	case err != nil:
		return nil, err
	case len(in.Records) > 500:
		return nil, invalid("a request has at most 500 records")
	case in.DryRun:
		return nil, nil
	}
	var results []map[string]any
	for _, r := range in.Records {
		sh, sequence, err := st.put(r.PartitionKey, r.ExplicitHashKey, r.Data)
		if err != nil {
			return nil, err
		}
		results = append(results, map[string]any{"ShardId": sh.Name, "SequenceNumber": sequence})
	}
	return map[string]any{"Records": results, "FailedRecordCount": 0, "EncryptionType": "NONE"}, nil
}
