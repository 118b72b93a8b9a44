package dynamostore

import (
	"maps"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A commit is the swap that a fleet makes most: under its generation, the holder stores a new checkpoint and changes
// nothing else. Store.swap would encode both rows and compare all their attributes to find that out. A commit has
// expressions that are known beforehand, and only its values are encoded.
//
// The expressions are those of any swap, with other placeholders: TestCommitIsASwap compares the two.
const (
	commitCondition = "#" + attr.WriteID + " = :was AND #" + attr.Counter + " = :read"
	commitUpdate    = "SET #" + attr.Position + " = :position, #" + attr.CheckpointAt + " = :at, #" + attr.Counter + " = :counter, #" +
		attr.WriteID + " = :id"
	commitFirst   = ", #" + attr.CheckpointGeneration + " = :generation" // the first commit under a generation
	commitState   = ", #" + attr.State + " = :state"
	commitNoState = " REMOVE #" + attr.State
)

// CommitTexts are the texts of the usual commit, to which its requests refer.
type commitTexts struct {
	condition, update string
	names             map[string]string
}

func newCommitTexts() commitTexts {
	return commitTexts{commitCondition, commitUpdate, map[string]string{
		"#" + attr.WriteID: attr.WriteID, "#" + attr.Counter: attr.Counter, "#" + attr.Position: attr.Position, "#" + attr.CheckpointAt: attr.CheckpointAt,
	}}
}

// isCommit reports whether a swap of rows is a commit. Write.Check has found that within a generation a
// holder changes nothing but the checkpoint, the offer and the number of past transfers.
func isCommit(old, next lease.Row) bool {
	return next.Generation == old.Generation && next.OfferedTo == old.OfferedTo && next.Past == old.Past &&
		next.Checkpoint.Position != "" && next.Checkpoint.At.UnixMilli() > 0 && old.Counter > 0
}

// commit is the request that stores a commit.
func (s *Store) commit(old, next lease.Row, at primaryKey) *dynamodb.UpdateItemInput {
	is, was := next.Checkpoint, old.Checkpoint
	values := map[string]types.AttributeValue{
		":was": attribute(string(old.WriteID)), ":read": attribute(old.Counter), ":id": attribute(string(next.WriteID)),
		":counter": attribute(next.Counter), ":position": attribute(is.Position), ":at": attribute(is.At.UnixMilli()),
	}
	if is.Generation == was.Generation && is.State == was.State {
		return s.update(at, s.commits.names, values, &s.commits.condition, &s.commits.update, types.ReturnValueNone)
	}
	names, update := maps.Clone(s.commits.names), commitUpdate
	if is.Generation != was.Generation {
		update += commitFirst
		names["#"+attr.CheckpointGeneration], values[":generation"] = attr.CheckpointGeneration, attribute(is.Generation)
	}
	if is.State != was.State {
		names["#"+attr.State] = attr.State
		if is.State == "" {
			update += commitNoState
		} else {
			update += commitState
			values[":state"] = attribute([]byte(is.State))
		}
	}
	return s.update(at, names, values, &s.commits.condition, &update, types.ReturnValueNone)
}
