package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore/kcl"
)

// mark is ImportOptions.Mark: it stores the sub-sequence number of a checkpoint as --packed requires.
func (m *migration) mark() func(sequence string, sub int64) (checkpoint.Mark, error) {
	switch m.packed {
	case "whole":
		return func(sequence string, _ int64) (checkpoint.Mark, error) {
			return checkpoint.Mark{Position: sequence}, nil
		}
	case "state":
		return func(sequence string, sub int64) (checkpoint.Mark, error) {
			return checkpoint.Mark{Position: sequence, State: strconv.FormatInt(sub, 10)}, nil
		}
	case "position": // also if sub is 0: the record may be the first of several in its entry
		return func(sequence string, sub int64) (checkpoint.Mark, error) {
			return checkpoint.Mark{Position: sequence + "/" + strconv.FormatInt(sub, 10)}, nil
		}
	}
	return nil
}

// word is ImportOptions.Word: with --packed position it keeps TRIM_HORIZON, LATEST or AT_TIMESTAMP as
// the position, as shardlease/kinesis expects.
func (m *migration) word() func(string) (checkpoint.Mark, error) {
	if m.packed != "position" {
		return nil
	}
	return func(word string) (checkpoint.Mark, error) {
		if word != "TRIM_HORIZON" && !m.unstarted {
			return checkpoint.Mark{}, kcl.ErrUnstarted
		}
		return checkpoint.Mark{Position: word}, nil
	}
}

// prepared is ImportOptions.Pending: with --pending drop it removes a prepared checkpoint.
func (m *migration) prepared() func(kcl.Lease) (kcl.Lease, error) {
	if m.pending != "drop" {
		return nil
	}
	return func(l kcl.Lease) (kcl.Lease, error) {
		l.Pending, l.PendingSub, l.PendingState = "", 0, nil
		return l, nil
	}
}

// checkpointOf is ExportOptions.Checkpoint: it reads the sub-sequence number from the position, after a
// slash, or from the state. With --packed position it ignores the state, which is no number in
// shardlease/kinesis.
func (m *migration) checkpointOf(of checkpoint.Mark) (string, int64, error) {
	sequence, number, inPosition := strings.Cut(of.Position, "/")
	switch {
	case !inPosition && m.packed == "position", !inPosition && of.State == "":
		return sequence, 0, nil
	case !inPosition:
		number = of.State
	}
	sub, err := strconv.ParseInt(number, 10, 64)
	if err != nil || sub < 0 {
		return "", 0, errors.New("has a position or a state without a valid sub-sequence number (for positions of shardlease/kinesis: --packed position)")
	}
	return sequence, sub, nil
}
