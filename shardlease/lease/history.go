package lease

import (
	"errors"
	"strconv"
	"strings"
)

// A History is the earlier transfers of a row, newest first and packed: a line
// each, of how many generations back, reason, from, by, and seconds since 1970,
// with tabs between. Names hold no control characters.
//
// It is kept packed because every write carries it along and only people read it.
type History string

var errHistory = errors.New("must hold five fields a line, and count back to an earlier generation")

// History unpacks the earlier transfers, newest first, without the latest.
func (r Row) History() []Transfer {
	past, _ := r.Past.transfers(r.Generation)
	return past
}

// after is the history once last has been followed by a transfer that began that
// generation.
func (h History) after(last Transfer, generation int64) History {
	line := strings.Join([]string{
		strconv.FormatInt(generation-last.Generation, 10), string(last.Reason), last.From, last.By,
		strconv.FormatInt(millis(last.At)/1000, 10),
	}, "\t")
	if h == "" {
		return History(line)
	}
	return History(line) + "\n" + h
}

// starts reports whether h begins with the newest transfers in part, and so
// whether part is h with some of the oldest forgotten.
func (h History) starts(part History) bool {
	rest, ok := strings.CutPrefix(string(h), string(part))
	return ok && (part == "" || rest == "" || rest[0] == '\n')
}

// forget drops the oldest transfer.
func (h History) forget() History {
	return h[:max(strings.LastIndexByte(string(h), '\n'), 0)]
}

// transfers reads the history of a row that stands at that generation. What
// could be read comes back beside the error.
func (h History) transfers(generation int64) ([]Transfer, error) {
	var past []Transfer
	if h == "" {
		return nil, nil
	}
	for line := range strings.SplitSeq(string(h), "\n") {
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

// pack writes the latest transfer as one attribute.
func (t Transfer) pack() string {
	return strings.Join([]string{string(t.Reason), t.From, t.By, strconv.FormatInt(millis(t.At), 10), string(t.WriteID), t.Note}, "\t")
}

func (in *reader) last(generation int64) Transfer {
	fields := strings.Split(in.text(AttrLast), "\t")
	if len(fields) != 6 {
		in.fail(AttrLast, "must have six fields")
		return Transfer{}
	}
	at, err := strconv.ParseInt(fields[3], 10, 64)
	if err != nil {
		in.fail(AttrLast, "must hold a time")
	}
	return Transfer{
		Generation: generation, Reason: Reason(fields[0]), From: fields[1], By: fields[2],
		At: fromMillis(at), WriteID: WriteID(fields[4]), Note: fields[5],
	}
}
