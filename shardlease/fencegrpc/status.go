package fencegrpc

import (
	"errors"
	"strconv"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The details of a status: the reasons of this domain, and the fields of a stale one.
const (
	domain        = "shardlease"
	reasonStale   = "STALE"
	reasonMissing = "MISSING_TOKEN"
	reasonInvalid = "INVALID_TOKEN"

	fieldShard      = "shard"
	fieldGeneration = "generation" // that of the call
	fieldObserved   = "observed"   // the higher one
	fieldOwner      = "owner"
	fieldUnknown    = "outcomeUnknown"
)

// sent returns the status that stands for an error of this domain, and any other error as it is.
func sent(err error) error {
	stale, ok := errors.AsType[*checkpoint.StaleError](err)
	switch {
	case ok && stale != nil:
		return detailed(codes.FailedPrecondition, reasonStale, err, map[string]string{
			fieldShard:      stale.Shard,
			fieldGeneration: strconv.FormatInt(stale.Mine, 10),
			fieldObserved:   strconv.FormatInt(stale.Observed, 10),
			fieldOwner:      stale.Owner,
			fieldUnknown:    strconv.FormatBool(stale.OutcomeUnknown),
		})
	case errors.Is(err, fence.ErrMissing):
		return detailed(codes.FailedPrecondition, reasonMissing, err, nil)
	case errors.Is(err, checkpoint.ErrInvalid):
		return detailed(codes.InvalidArgument, reasonInvalid, err, nil)
	}
	return err
}

func detailed(code codes.Code, reason string, err error, fields map[string]string) error {
	plain := status.New(code, err.Error())
	s, errDetails := plain.WithDetails(&errdetails.ErrorInfo{Domain: domain, Reason: reason, Metadata: fields})
	if errDetails != nil {
		s = plain
	}
	return s.Err()
}

// received joins the error that a status stands for to the status.
func received(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	for _, detail := range s.Details() {
		info, ok := detail.(*errdetails.ErrorInfo)
		if !ok || info.GetDomain() != domain {
			continue
		}
		switch info.GetReason() {
		case reasonStale:
			return errors.Join(staleOf(info.GetMetadata()), err)
		case reasonMissing:
			return errors.Join(fence.ErrMissing, err)
		case reasonInvalid:
			return errors.Join(checkpoint.ErrInvalid, err)
		}
	}
	return err
}

func staleOf(fields map[string]string) *checkpoint.StaleError {
	number := func(field string) int64 {
		n, _ := strconv.ParseInt(fields[field], 10, 64) // 0: another version of this package has sent it
		return n
	}
	return &checkpoint.StaleError{
		Shard: fields[fieldShard], Mine: number(fieldGeneration), Observed: number(fieldObserved),
		Owner: fields[fieldOwner], OutcomeUnknown: fields[fieldUnknown] == strconv.FormatBool(true),
	}
}
