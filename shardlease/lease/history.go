package lease

import (
	"cmp"
	"errors"
	"strconv"
	"strings"

	"github.com/shardlease/shardlease-go/internal/attr"
)

var errHistory = errors.New("must have five to eight fields in each line, and lead back to an earlier generation")

// History returns the transfers before the last one, newest first, as far as the row keeps them. Of
// their notes, only those of commands and of moves that an operator has caused are kept, each with its first 64 bytes.
func (r Row) History() []Transfer {
	past, _ := unpack(r.Past, r.Last)
	return past
}

// Followed returns the packed history of r after a change of hands that begins the given
// generation.
func (r Row) Followed(generation int64) string {
	t := r.Last
	return attr.AddTransfer(r.Past, attr.Transfer{
		Back: generation - t.Generation, Reason: string(t.Reason), From: t.From, By: t.By, At: t.At,
		Did: t.Did, Mode: t.mode(), Why: letter(t.Why), Task: attr.PackTask(t.Task, r.Owner.Task), Note: t.Note, Steered: steered(t.Why),
	})
}

// mode returns the mode as a word; empty: there is none.
func (t Transfer) mode() string {
	if t.Mode == 0 {
		return ""
	}
	return t.Mode.String()
}

// setDid reads what was done: the mode of a planned move, or what a command did; and the note, which for a planned move
// begins with the cause.
func (t *Transfer) setDid(word, note string) {
	if t.Note = note; t.Mode.UnmarshalText([]byte(word)) != nil {
		t.Did = word
		return
	}
	why, note := attr.UnpackNote(note)
	t.Why, t.Note = whyOf(why), note
}

// packedNote returns the note as the row stores it.
func (t Transfer) packedNote() string {
	if t.Mode == 0 {
		return t.Note
	}
	return attr.PackNote(letter(t.Why), t.Note)
}

// unpack reads the packed transfers of a row before its last one. With an error it also returns
// the transfers that it could read.
func unpack(packed string, last Transfer) ([]Transfer, error) {
	var past []Transfer
	generation, task := last.Generation, last.Task
	if packed == "" {
		return nil, nil
	}
	for line := range strings.SplitSeq(packed, "\n") {
		fields := strings.Split(line, "\t")
		if len(fields) < 5 || len(fields) > 8 {
			return past, errHistory
		}
		fields = append(fields, "", "", "")
		back, errBack := strconv.ParseInt(fields[0], 10, 64)
		at, errAt := strconv.ParseInt(fields[4], 10, 64)
		if errors.Join(errBack, errAt) != nil || back < 1 || back >= generation {
			return past, errHistory
		}
		generation -= back
		t := Transfer{
			Generation: generation, Reason: Reason(fields[1]), From: fields[2], By: fields[3],
			At: fromMillis(at * 1000), Task: attr.UnpackTask(fields[6], task),
		}
		task = t.Task
		t.setDid(fields[5], fields[7])
		past = append(past, t)
	}
	return past, nil
}

// pack encodes t as one attribute of a row whose owner has the given task.
func (t Transfer) pack(task string) string {
	return strings.TrimRight(strings.Join([]string{
		string(t.Reason), t.From, t.By, strconv.FormatInt(millis(t.At), 10), string(t.WriteID), cmp.Or(t.Did, t.mode()), attr.PackTask(t.Task, task), t.packedNote(),
	}, "\t"), "\t")
}

func (in *reader) last(generation int64, task string) Transfer {
	fields := strings.Split(in.text(attr.Last), "\t")
	if len(fields) < 5 || len(fields) > 8 {
		in.fail(attr.Last, "must have five to eight fields")
		return Transfer{}
	}
	fields = append(fields, "", "", "")
	at, err := strconv.ParseInt(fields[3], 10, 64)
	if err != nil {
		in.fail(attr.Last, "must hold a time")
	}
	t := Transfer{
		Generation: generation, Reason: Reason(fields[0]), From: fields[1], By: fields[2],
		At: fromMillis(at), WriteID: WriteID(fields[4]), Task: attr.UnpackTask(fields[6], task),
	}
	t.setDid(fields[5], fields[7])
	return t
}
