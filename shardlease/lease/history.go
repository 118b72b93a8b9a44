package lease

import (
	"errors"
	"strconv"
	"strings"

	"github.com/shardlease/shardlease-go/internal/attr"
)

var errHistory = errors.New("must have five fields in each line, and lead back to an earlier generation")

// History returns the transfers before the last one, newest first, as far as the row keeps them.
func (r Row) History() []Transfer {
	past, _ := unpack(r.Past, r.Generation)
	return past
}

// followed returns the packed history of r after a change of hands that begins the given
// generation.
func (r Row) followed(generation int64) string {
	return attr.AddTransfer(r.Past, generation-r.Last.Generation, string(r.Last.Reason), r.Last.From, r.Last.By, r.Last.At)
}

// unpack reads the packed transfers of a row whose present generation is given. With an error
// it also returns the transfers that it could read.
func unpack(packed string, generation int64) ([]Transfer, error) {
	var past []Transfer
	if packed == "" {
		return nil, nil
	}
	for line := range strings.SplitSeq(packed, "\n") {
		fields := strings.Split(line, "\t")
		if len(fields) != 5 {
			return past, errHistory
		}
		back, errBack := strconv.ParseInt(fields[0], 10, 64)
		at, errAt := strconv.ParseInt(fields[4], 10, 64)
		if errors.Join(errBack, errAt) != nil || back < 1 || back >= generation {
			return past, errHistory
		}
		generation -= back
		past = append(past, Transfer{
			Generation: generation, Reason: Reason(fields[1]), From: fields[2], By: fields[3],
			At: fromMillis(at * 1000),
		})
	}
	return past, nil
}

// pack encodes t as one attribute.
func (t Transfer) pack() string {
	return strings.Join([]string{string(t.Reason), t.From, t.By, strconv.FormatInt(millis(t.At), 10), string(t.WriteID), t.Note}, "\t")
}

func (in *reader) last(generation int64) Transfer {
	fields := strings.Split(in.text(attr.Last), "\t")
	if len(fields) != 6 {
		in.fail(attr.Last, "must have six fields")
		return Transfer{}
	}
	at, err := strconv.ParseInt(fields[3], 10, 64)
	if err != nil {
		in.fail(attr.Last, "must hold a time")
	}
	return Transfer{
		Generation: generation, Reason: Reason(fields[0]), From: fields[1], By: fields[2],
		At: fromMillis(at), WriteID: WriteID(fields[4]), Note: fields[5],
	}
}
