package checkpoint_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
)

func TestMarkLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		mark  checkpoint.Mark
		field string // the field that the error names; empty: no error
		limit int64
	}{
		"plain":                    {checkpoint.Mark{Position: "1"}, "", 0},
		"longest position":         {checkpoint.Mark{Position: strings.Repeat("9", checkpoint.MaxPosition)}, "", 0},
		"position one byte over":   {checkpoint.Mark{Position: strings.Repeat("9", checkpoint.MaxPosition+1)}, "position", checkpoint.MaxPosition},
		"empty position":           {checkpoint.Mark{State: "s"}, "position", 0},
		"position not UTF-8":       {checkpoint.Mark{Position: "a\xff"}, "position", 0},
		"largest state, any bytes": {checkpoint.Mark{Position: "1", State: strings.Repeat("\xff", checkpoint.MaxState)}, "", 0},
		"state one byte over":      {checkpoint.Mark{Position: "1", State: strings.Repeat("s", checkpoint.MaxState+1)}, "state", checkpoint.MaxState},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.mark.Validate()
			if tc.field == "" {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			invalid, ok := errors.AsType[*checkpoint.InvalidError](err)
			if !ok || !errors.Is(err, checkpoint.ErrInvalid) {
				t.Fatalf("got %v, want an InvalidError", err)
			}
			if invalid.Field != tc.field || invalid.Limit != tc.limit {
				t.Errorf("the error names %q with limit %d, want %q with %d", invalid.Field, invalid.Limit, tc.field, tc.limit)
			}
		})
	}
}

func TestAdvance(t *testing.T) {
	backwards := checkpoint.ErrBackwards
	for name, tc := range map[string]struct {
		order    checkpoint.Order
		from, to string
		want     error
	}{
		"decimal forward":             {checkpoint.Decimal, "9", "10", nil},
		"decimal still":               {checkpoint.Decimal, "10", "10", nil},
		"decimal still, padded":       {checkpoint.Decimal, "10", "0010", nil},
		"decimal back":                {checkpoint.Decimal, "10", "9", backwards},
		"decimal back by length":      {checkpoint.Decimal, "49590338271490256608559692540925702759324208523137515618", "4959033827149025660855969254092570275932420852313751561", backwards},
		"decimal zero":                {checkpoint.Decimal, "0", "1", nil},
		"decimal first":               {checkpoint.Decimal, "", "7", nil},
		"decimal first, not a number": {checkpoint.Decimal, "", "LATEST", checkpoint.ErrInvalid},
		"decimal negative":            {checkpoint.Decimal, "1", "-2", checkpoint.ErrInvalid},
		"decimal stored not a number": {checkpoint.Decimal, "TRIM_HORIZON", "2", checkpoint.ErrInvalid},
		"lexical forward":             {checkpoint.Lexical, "2026-01-09", "2026-01-10", nil},
		"lexical back":                {checkpoint.Lexical, "b", "a", backwards},
		"unordered":                   {checkpoint.Unordered, "b", "a", nil},
		"nil is unordered":            {nil, "b", "a", nil},
		"empty":                       {checkpoint.Lexical, "a", "", checkpoint.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.order.Advance("s", checkpoint.Mark{Position: tc.from}, checkpoint.Mark{Position: tc.to})
			if !errors.Is(err, tc.want) || (tc.want == nil) != (err == nil) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

// FuzzDecimal compares Decimal with math/big.
func FuzzDecimal(f *testing.F) {
	f.Add("9", "10")
	f.Add("007", "7")
	f.Add("", "x")
	f.Fuzz(func(t *testing.T, a, b string) {
		if max(len(a), len(b)) > checkpoint.MaxPosition {
			return // math/big is slow for these
		}
		got, err := checkpoint.Decimal(a, b)
		x, okX := bigNumber(a)
		y, okY := bigNumber(b)
		if (err == nil) != (okX && okY) {
			t.Fatalf("Decimal(%q, %q): %v", a, b, err)
		}
		if err == nil && got != x.Cmp(y) {
			t.Fatalf("Decimal(%q, %q) = %d, want %d", a, b, got, x.Cmp(y))
		}
	})
}

func bigNumber(s string) (*big.Int, bool) {
	if strings.Trim(s, "0123456789") != "" {
		return nil, false // SetString would accept signs and underscores
	}
	return new(big.Int).SetString(s, 10)
}

// TestContentsStayPrivate puts a canary into a position and a state and prints them in every way in
// which a log might.
func TestContentsStayPrivate(t *testing.T) {
	const canary = "canary"
	mark := checkpoint.Mark{Position: canary, State: canary}
	point := checkpoint.Checkpoint{Mark: mark, Generation: 7}
	var out bytes.Buffer
	for _, v := range []any{mark, point, &mark, &point, struct{ C checkpoint.Checkpoint }{point}} {
		fmt.Fprintf(&out, "%v %+v %#v %s %d %q\n", v, v, v, v, v, v)
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(text)
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("x", "mark", mark, "checkpoint", point)
	}
	for _, o := range []checkpoint.Order{checkpoint.Decimal, checkpoint.Lexical} {
		fmt.Fprintln(&out, o.Advance("s", checkpoint.Mark{Position: "z" + canary}, mark))
	}
	fmt.Fprintln(&out, checkpoint.Mark{Position: canary + "\xff"}.Validate())
	if strings.Contains(out.String(), canary) {
		t.Errorf("the output contains the contents:\n%s", out.String())
	}
	spy := checkpoint.Order(func(a, b string) (int, error) { return 0, fmt.Errorf("cannot read %q", a) })
	if err := spy.Advance("s", mark, mark); !errors.Is(err, checkpoint.ErrInvalid) || strings.Contains(err.Error(), canary) {
		t.Errorf("the error contains the order's own error: %v", err)
	}
	if !strings.Contains(out.String(), "generation 7") || !strings.Contains(out.String(), "6 bytes") {
		t.Errorf("the output lacks the generation or the lengths:\n%s", out.String())
	}
}

func TestStaleErrorTellsWhoHoldsIt(t *testing.T) {
	err := error(&checkpoint.StaleError{Shard: "s1", Mine: 4, Observed: 6, Owner: "b", OutcomeUnknown: true})
	if !errors.Is(fmt.Errorf("commit: %w", err), checkpoint.ErrStale) {
		t.Error("the error is not ErrStale")
	}
	for _, want := range []string{`"s1"`, "generation 4", "now at 6", `"b" holds it`, "outcome of the write unknown"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
}

func TestZeroCheckpoint(t *testing.T) {
	var none checkpoint.Checkpoint
	if !none.IsZero() || none.String() != "no checkpoint" {
		t.Errorf("the zero checkpoint prints %q", none)
	}
}
