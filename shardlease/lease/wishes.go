package lease

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/attr"
)

// Wishes are what operators want of the target assignment of a group, in one record beside the
// seats. The next plan takes them into account, except those of the kind "look". Operators and planners replace the whole list,
// on condition that its write id is still as they read it.
type Wishes struct {
	Group   string
	WriteID WriteID
	List    []Wish    // sorted by kind and subject, one of each
	At      time.Time // the wall clock of the last writer, for people
}

// A Wish is one thing that an operator wants.
type Wish struct {
	Kind    WishKind
	Subject string // the name of a worker or a shard, as Kind says
	To      string // the name of the worker to which a shard is pinned or moves
	By      string // the operator
	Why     string
	// Until is when the wish ends; zero: never. It is the one stored time that is compared: by
	// the planner, with its own wall clock. A wrong clock makes a wish end early or late, and no
	// promise rests on it.
	Until time.Time
	// Generation and Lasts are those of a move, and 0 in a wish of any other kind. A session obeys a move only under
	// this generation, which the operator has seen. Then the lease is reserved for To for as long as Lasts.
	Generation int64
	Lasts      time.Duration // in whole milliseconds, up to a day
	// Number tells a wish of the kind "raise" from earlier ones: it grows. It is 0 in a wish of any other kind.
	Number int64
}

// A WishKind is what an operator wants. A kind that this version does not know was written by a
// newer one; it is kept, and has no effect.
type WishKind string

const (
	WishCordon WishKind = "cordon" // the worker named Subject gets no more shards
	WishDrain  WishKind = "drain"  // the worker named Subject keeps no shards
	WishPause  WishKind = "pause"  // no held shard moves; there is no subject
	WishPin    WishKind = "pin"    // the shard Subject belongs to the worker named To
	WishMove   WishKind = "move"   // the shard Subject moves to the worker or session named To; then the wish ends

	// Every worker and session raises the fences of all that it holds again (Config.Targets); there is no subject. In a group of
	// workers the wish ends when all have done so.
	WishRaise WishKind = "raise"

	// Workers read the row of the shard Subject, because a command has changed it. Supervisors make this
	// wish, and show it to nobody.
	wishLook WishKind = "look"
)

// WishKinds returns the kinds of wish that operators make. If two wishes for one worker differ, the later kind prevails.
func WishKinds() []WishKind {
	return []WishKind{WishRaise, WishPause, WishMove, WishPin, WishCordon, WishDrain}
}

// Names returns what Subject and To name in a wish of this kind: a "worker" or a "shard", or nothing. For a kind that this
// version does not know, known is false.
func (k WishKind) Names() (subject, to string, known bool) {
	switch k {
	case WishCordon, WishDrain:
		return "worker", "", true
	case WishPause, WishRaise:
		return "", "", true
	case WishPin, WishMove:
		return "shard", "worker", true
	case wishLook:
		return "shard", "", true
	}
	return "", "", false
}

// The limits of wishes. All watchers read them whenever they list the seats.
const (
	MaxWishes = 1000 // how many wishes a group may have

	maxWishesBytes = 128 << 10
)

// wishesName is the name of the wishes' key. It is below every incarnation.
const wishesName = "!wishes"

// Stands reports whether the wish has not ended at that time.
func (w Wish) Stands(now time.Time) bool { return w.Until.IsZero() || now.Before(w.Until) }

// Compare orders wishes by kind and subject. Two wishes for which it returns 0 replace each other.
func (w Wish) Compare(other Wish) int {
	return cmp.Or(cmp.Compare(w.Kind, other.Kind), cmp.Compare(w.Subject, other.Subject))
}

func (w Wish) String() string {
	words := []string{string(w.Kind)}
	if w.Number > 0 { // two of them are different, also for a version that does not know the kind
		words[0] = w.packKind()
	}
	if w.Subject != "" {
		words = append(words, strconv.Quote(w.Subject))
	}
	if w.To != "" {
		words = append(words, "to "+strconv.Quote(w.To))
	}
	words = append(words, "by "+strconv.Quote(w.By))
	if !w.Until.IsZero() {
		words = append(words, "until "+w.Until.Format(time.RFC3339))
	}
	if w.Why != "" {
		words = append(words, "("+w.Why+")")
	}
	return strings.Join(words, " ")
}

func (w Wish) validate() error {
	errs := []error{
		validID("kind of wish", string(w.Kind)), validText("subject", w.Subject, MaxName), validText("to", w.To, MaxName),
		validName("by", w.By), validText("why", w.Why, MaxName),
	}
	subject, to, known := w.Kind.Names()
	if known && ((subject != "") != (w.Subject != "") || (to != "") != (w.To != "")) {
		errs = append(errs, invalid("wish", fmt.Sprintf("%q needs a worker or a shard as its kind says, and nothing else", w.Kind)))
	}
	if w.Generation != 0 || w.Lasts != 0 {
		errs = append(errs, Reservation{For: w.To, Lasts: w.Lasts}.Validate())
		if w.Generation < 0 || w.Kind != WishMove {
			errs = append(errs, invalid("generation", "must be 0, or that of a lease that moves"))
		}
	}
	if w.Number < 0 || w.Number > 0 && w.Kind != WishRaise {
		errs = append(errs, invalid("number", "must be 0, or that of a wish to raise fences again"))
	}
	return errors.Join(errs...)
}

// packKind returns the kind as it is stored. That of a move has the generation and the milliseconds of Lasts too, and that
// of a raise its number. A version that does not know them reads an unknown kind, which has no effect.
func (w Wish) packKind() string {
	switch {
	case w.Number != 0:
		return fmt.Sprintf("%s:%d", w.Kind, w.Number)
	case w.Lasts == 0:
		return string(w.Kind)
	}
	return fmt.Sprintf("%s:%d:%d", w.Kind, w.Generation, w.Lasts.Milliseconds())
}

// unpackKind sets the fields that packKind has packed.
func (w *Wish) unpackKind(text string) {
	w.Kind = WishKind(text)
	kind, rest, _ := strings.Cut(text, ":")
	if WishKind(kind) == WishRaise {
		n, err := strconv.ParseInt(rest, 10, 64)
		if of := (Wish{Kind: WishRaise, Number: n}); err == nil && n > 0 && of.packKind() == text {
			w.Kind, w.Number = of.Kind, of.Number
		}
		return
	}
	generation, lasts, packed := strings.Cut(rest, ":")
	if WishKind(kind) != WishMove || !packed {
		return
	}
	n, err1 := strconv.ParseInt(generation, 10, 64)
	ms, err2 := strconv.ParseInt(lasts, 10, 32)
	of := Wish{Kind: WishMove, Generation: n, Lasts: time.Duration(ms) * time.Millisecond}
	if err1 == nil && err2 == nil && of.packKind() == text {
		w.Kind, w.Generation, w.Lasts = of.Kind, of.Generation, of.Lasts
	}
}

// pack returns the wish as an element of the stored set.
func (w Wish) pack() string {
	return strings.Join([]string{w.packKind(), w.Subject, w.To, strconv.FormatInt(millis(w.Until), 10), w.By, w.Why}, "\t")
}

func unpackWish(text string) (Wish, bool) {
	fields := strings.Split(text, "\t")
	if len(fields) != 6 {
		return Wish{}, false
	}
	until, err := strconv.ParseInt(fields[3], 10, 64)
	w := Wish{Subject: fields[1], To: fields[2], Until: fromMillis(until), By: fields[4], Why: fields[5]}
	w.unpackKind(fields[0])
	return w, err == nil && w.pack() == text
}

// Key returns the address of the wishes.
func (w Wishes) Key() Key { return Key{Group: w.Group, Kind: KindWishes, Name: wishesName} }

// Written returns the id of the write that made the wishes what they are.
func (w Wishes) Written() WriteID { return w.WriteID }

func (w Wishes) count() int64 { return 0 }

// Validate reports everything that makes w impossible to store.
func (w Wishes) Validate() error {
	errs := []error{w.Key().Validate(), validID("write id", string(w.WriteID))}
	if n := len(w.List); n > MaxWishes {
		errs = append(errs, tooMany("wishes", n, MaxWishes))
	}
	size := 0
	for i, wish := range w.List {
		size += len(wish.pack())
		errs = append(errs, wish.validate())
		if i > 0 && w.List[i-1].Compare(wish) >= 0 {
			errs = append(errs, invalid("wishes", "must be sorted, one of each kind for each subject"))
		}
	}
	if size > maxWishesBytes {
		errs = append(errs, tooLong("wishes", size, maxWishesBytes))
	}
	return errors.Join(errs...)
}

func (w Wishes) clone() Wishes {
	w.List = slices.Clone(w.List)
	return w
}

func (w Wishes) encode(put func(string, any)) {
	list := make([]string, len(w.List))
	for i, wish := range w.List {
		list[i] = wish.pack()
	}
	put(attr.Wishes, list)
	put(attr.At, millis(w.At))
}

func (in *reader) wishes(key Key) Wishes {
	w := Wishes{Group: key.Group, WriteID: WriteID(in.text(attr.WriteID)), At: in.time(attr.At)}
	for _, text := range in.set(attr.Wishes) {
		wish, ok := unpackWish(text)
		if !ok {
			in.fail(attr.Wishes, "must have six fields in each element")
		}
		w.List = append(w.List, wish)
	}
	slices.SortFunc(w.List, Wish.Compare)
	return w
}

func (w Wishes) String() string { return fmt.Sprintf("%v: %d wishes %v", w.Key(), len(w.List), w.List) }

// LogValue returns the wishes as a group of fields for structured logs.
func (w Wishes) LogValue() slog.Value {
	return slog.GroupValue(slog.String("group", w.Group), slog.Int("wishes", len(w.List)))
}
