package stream

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

// The reasons for which a stream cannot be read, or a listing is not trusted. Callers compare with errors.Is.
var (
	// ErrPartial means that a listing leaves out a shard that Kinesis has.
	ErrPartial = errors.New("the listing of the shards leaves out one that exists")
	// ErrRecreated means that the stream was deleted, and another one was created under its name. The
	// checkpoints of the group belong to the old stream.
	ErrRecreated = errors.New("another stream was created under this name: use another group, or remove the leases of this one")
	// ErrDeleted means that the stream existed and was deleted. Its unread records are lost.
	ErrDeleted = errors.New("the stream was deleted: stop the workers that read it")
	// ErrNoStream means that there is no such stream.
	ErrNoStream = errors.New("there is no such stream in this account and region: check the name and the region, and give the ARN of a stream of another account")
)

// Answers that look like the end of a shard, but do not prove it.
var (
	errOpen   = errors.New("an answer has no next iterator, and the shard is open")
	errAbsent = errors.New("the shard is absent from Kinesis")
)

// A DeniedError reports which actions on a resource are denied.
type DeniedError struct {
	Actions  []string // such as kinesis:GetRecords
	Resource string   // an ARN
	Err      error    // the answer of Kinesis
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("%s is not allowed: add the statement %s to the policy (%v)", strings.Join(e.Actions, ", "), e.Statement(), e.Err)
}

// Unwrap returns the answer of Kinesis.
func (e *DeniedError) Unwrap() error { return e.Err }

// Statement returns the statement that allows the actions, for an IAM policy.
func (e *DeniedError) Statement() string {
	resource := any(e.Resource)
	if named, ok := strings.CutSuffix(e.Resource, ":*"); ok { // requests may name a registered consumer without the time of its registration
		resource = []string{named, e.Resource}
	}
	text, _ := json.Marshal(struct {
		Effect   string
		Action   []string
		Resource any
	}{"Allow", e.Actions, resource}) // strings can always be encoded
	return string(text)
}

// A StartError reports that a new group cannot begin where [Start] says.
type StartError struct {
	Stream string // the name or ARN of the stream; empty: the shard belongs to none
	Shard  string // the shard that Start.Sequence names; empty: the error concerns all shards
	Rule   string // what is wrong, and what to do
	Err    error  // the answer of Kinesis, or nil
}

func (e *StartError) Error() string {
	text := "start of stream " + e.Stream
	if e.Shard != "" {
		text += ", shard " + e.Shard
	}
	text += ": " + e.Rule
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the answer of Kinesis.
func (e *StartError) Unwrap() error { return e.Err }

// explain turns the error of a request into one that says what to do, if a permission was refused or the stream does
// not exist. The action is the name of the request.
func (s *Stream) explain(action string, err error) error {
	if _, denied := errors.AsType[*types.AccessDeniedException](err); denied {
		return &DeniedError{Actions: []string{"kinesis:" + action}, Resource: s.resource(), Err: err}
	}
	if _, denied := errors.AsType[*types.KMSAccessDeniedException](err); denied {
		return &DeniedError{Actions: []string{"kms:Decrypt"}, Resource: s.key(), Err: err}
	}
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); !missing || action != describe && action != list {
		return err
	}
	if s.described().identity != "" {
		return fmt.Errorf("%w: %w", ErrDeleted, err)
	}
	return fmt.Errorf("%w: %w", ErrNoStream, err)
}

// The requests of a reader, as IAM calls them.
const (
	describe  = "DescribeStreamSummary"
	list      = "ListShards"
	iterate   = "GetShardIterator"
	get       = "GetRecords"
	subscribe = "SubscribeToShard"
)

// resource returns the ARN of the stream. Until Kinesis has described the stream, the account is "*".
func (s *Stream) resource() string {
	if known := s.described().arn; known != "" {
		return known
	}
	if _, arn := s.address(); arn != nil {
		return *arn
	}
	region := s.Client.Options().Region
	partition := "aws"
	for prefix, name := range map[string]string{"cn-": "aws-cn", "us-gov-": "aws-us-gov"} {
		if strings.HasPrefix(region, prefix) {
			partition = name
		}
	}
	return "arn:" + partition + ":kinesis:" + region + ":*:stream/" + s.Name
}

// key returns the ARN of the key that encrypts the stream, or "*" if only an alias is known: a policy
// cannot name an alias.
func (s *Stream) key() string {
	if key := s.described().key; strings.HasPrefix(key, "arn:") && strings.Contains(key, ":key/") {
		return key
	}
	return "*"
}

// recovered turns a panic into an error.
func recovered(err *error) {
	if fault := recover(); fault != nil {
		*err = fmt.Errorf("panic: %v\n%s", fault, debug.Stack())
	}
}
