package fence_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestTokensArriveAsSent: Parse reads what Fields has written, also of names that no header carries.
func TestTokensArriveAsSent(t *testing.T) {
	for _, token := range []fence.Token{
		{"orders", "shard-0", 1}, {"a/b", "shardId-000/1", 3559528142471169}, {"Bestellungen für", "シャード % +,;\"", math.MaxInt64},
		{"g", strings.Repeat("é", lease.MaxName/2), 7},
	} {
		fields, err := token.Fields()
		if err != nil {
			t.Fatal(err)
		}
		for field, text := range fields {
			if field != strings.ToLower(field) || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
				t.Errorf("%s: %q is no value of a header", field, text)
			}
		}
		got, err := fence.Parse(func(field string) []string { return []string{fields[field]} })
		if err != nil || got != token {
			t.Errorf("got %v, %v, want %v", got, err, token)
		}
	}
}

func TestMalformedTokensAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		field  string
		values []string
	}{
		"no group":                {fence.FieldGroup, nil},
		"empty group":             {fence.FieldGroup, []string{""}},
		"two shards":              {fence.FieldShard, []string{"shard-0", "shard-0"}},
		"no shard":                {fence.FieldShard, nil},
		"bad escape":              {fence.FieldShard, []string{"shard%2"}},
		"not escaped":             {fence.FieldShard, []string{"shard 0"}},
		"escaped for no reason":   {fence.FieldShard, []string{"%73hard-0"}},
		"control character":       {fence.FieldShard, []string{"shard%00"}},
		"not UTF-8":               {fence.FieldShard, []string{"shard%FF"}},
		"long":                    {fence.FieldShard, []string{strings.Repeat("s", lease.MaxName+1)}},
		"no generation":           {fence.FieldGeneration, nil},
		"two generations":         {fence.FieldGeneration, []string{"7", "8"}},
		"a list":                  {fence.FieldGeneration, []string{"7, 8"}},
		"zero":                    {fence.FieldGeneration, []string{"0"}},
		"negative":                {fence.FieldGeneration, []string{"-7"}},
		"with a sign":             {fence.FieldGeneration, []string{"+7"}},
		"with a leading zero":     {fence.FieldGeneration, []string{"07"}},
		"with a space":            {fence.FieldGeneration, []string{" 7"}},
		"hexadecimal":             {fence.FieldGeneration, []string{"0x7"}},
		"a floating-point number": {fence.FieldGeneration, []string{"7e3"}},
		"more than 64 bits":       {fence.FieldGeneration, []string{"9223372036854775808"}},
	} {
		t.Run(name, func(t *testing.T) {
			fields := map[string][]string{fence.FieldGroup: {"orders"}, fence.FieldShard: {"shard-0"}, fence.FieldGeneration: {"7"}}
			fields[tc.field] = tc.values
			got, err := fence.Parse(func(field string) []string { return fields[field] })
			if !errors.Is(err, checkpoint.ErrInvalid) || got != (fence.Token{}) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	_, err := fence.Parse(func(string) []string { return nil })
	if !errors.Is(err, fence.ErrMissing) || errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("without fields: %v", err)
	}
}

// TestInvalidTokensAreNotSent: a token that a server would refuse is refused before it is sent.
func TestInvalidTokensAreNotSent(t *testing.T) {
	for _, token := range []fence.Token{{}, {"", "s", 7}, {"g", "", 7}, {"g", "s", 0}, {"g", "s\n", 7}} {
		if fields, err := token.Fields(); !errors.Is(err, checkpoint.ErrInvalid) || fields != nil {
			t.Errorf("%v: %v, %v", token, fields, err)
		}
	}
}

// A counter is a guard in memory: its effects count. A real one is a transaction.
type counter struct {
	fences map[string]int64
	sum    int
}

func (c *counter) Do(ctx context.Context, t fence.Token, effect func(context.Context, *int) error) error {
	if observed := c.fences[t.Group+"/"+t.Shard]; t.Generation < observed {
		return t.Refused(observed)
	}
	next := c.sum
	if err := effect(ctx, &next); err != nil {
		return err
	}
	c.fences[t.Group+"/"+t.Shard], c.sum = t.Generation, next
	return nil
}

// TestDoUsesTheTokenOfTheContext: Do hands the token of the context to the guard, and none if there
// is none.
func TestDoUsesTheTokenOfTheContext(t *testing.T) {
	c := &counter{fences: map[string]int64{}}
	add := func(_ context.Context, sum *int) error { *sum++; return nil }
	at := func(generation int64) context.Context {
		return fence.NewContext(t.Context(), fence.Token{Group: "orders", Shard: "shard-0", Generation: generation})
	}
	if err := fence.Do(t.Context(), c, add); !errors.Is(err, fence.ErrMissing) || c.sum != 0 {
		t.Errorf("without a token: %v, sum %d", err, c.sum)
	}
	if err := fence.Do(at(8), c, add); err != nil || c.sum != 1 {
		t.Errorf("generation 8: %v, sum %d", err, c.sum)
	}
	err := fence.Do(at(7), c, add)
	stale, ok := errors.AsType[*checkpoint.StaleError](err)
	if want := (checkpoint.StaleError{Shard: "shard-0", Mine: 7, Observed: 8}); !ok || *stale != want || c.sum != 1 {
		t.Errorf("generation 7: %v, sum %d", err, c.sum)
	}
}
