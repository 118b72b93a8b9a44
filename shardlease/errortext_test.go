package shardlease_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestErrorText: the row has the first 160 bytes of the error of a handler, on one line, or what Config.ErrorText makes of it.
// The log of another worker that gets the shard does not have the text.
func TestErrorText(t *testing.T) {
	t.Parallel()
	secret := errors.New("card 4111\nrefused \x1b[31m" + strings.Repeat("é", 200))
	for name, tc := range map[string]struct {
		text func(error) string
		want string
	}{
		"default": {nil, `card 4111\nrefused \x1b[31m` + strings.Repeat("é", 66)},
		"own":     {func(err error) string { return strings.Repeat("x", 300) }, strings.Repeat("x", lease.MaxNote)},
		"same": {func(err error) string {
			if !errors.Is(err, secret) {
				return "another error"
			}
			return "card\ttype"
		}, `card\ttype`},
		"hidden": {func(error) string { return "" }, ""},
	} {
		subtest(t, name, func(t *testing.T) {
			var log lines
			store := new(memstore.Store)
			a := join(t, store, shardlease.Static("1"), shardlease.Config{Name: "a", ErrorText: tc.text}, func(context.Context, *shardlease.Tenure) error { return secret })
			pass(time.Minute)
			failed := rowOf(t, store, "1")
			if text, _ := failed.LastError(); text != tc.want || failed.Attempts() == 0 {
				t.Errorf("after %d attempts the row has %q, want %q", failed.Attempts(), text, tc.want)
			}
			if ended := a.of(event.Ended); len(ended) == 0 || !errors.Is(ended[0].Err, secret) {
				t.Errorf("its own event has lost the error: %v", ended)
			}
			b := join(t, store, shardlease.Static("1"), shardlease.Config{Name: "b", Logger: slog.New(slog.NewTextHandler(&log, nil))}, serve)
			pass(10 * time.Minute)
			if !strings.Contains(log.String(), `level=INFO msg="seat taken" event=joined group=`) {
				t.Errorf("the message of an event does not say what has happened: %s", log.String())
			}
			if len(b.of(event.Started)) == 0 || strings.Contains(log.String(), "4111") || strings.Contains(log.String(), "xxx") {
				t.Errorf("the log of another worker: %s", log.String())
			}
		})
	}
}
